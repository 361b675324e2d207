package enforcement

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ got, want string }{
		"SMs":                {SMs(MPS(false), 300, 108, ""), "MPS, 32 of 108 SMs"},
		"SMs inside MIG":     {SMs(MPS(true), 500, 14, "1g.10gb"), "MPS namespace, 6 of 14 SMs, inside of MIG 1g.10gb"},
		"memory":             {Memory(MPS(true), 0), "hook, MPS namespace"},
		"memory, the driver": {Memory(MPS(false), 1536*share.MiB), "dmem (1536 MiB), hook, MPS"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("%q, want %q", test.got, test.want)
			}
		})
	}
}

// TestOverruns checks that the status of the share that causes a delay names who is delayed, and the other way round.
func TestOverruns(t *testing.T) {
	t.Parallel()
	long, delayed, neither := token.Overruns{Long: true}, token.Overruns{Delayed: true}, token.Overruns{}
	for name, test := range map[string]struct {
		own        token.Overruns
		neighbours []Neighbour
		want       []string
	}{
		"cause": {long, []Neighbour{{"a", delayed}, {"b", neither}, {"c", delayed}},
			[]string{"its kernels or graphs outlast its turns and delay a, c; it repays the time"}},
		"victim":       {delayed, []Neighbour{{"a", long}, {"b", neither}}, []string{"it is delayed by kernels or graphs of a, and gets its time later"}},
		"nobody waits": {long, []Neighbour{{"a", neither}}, nil},
		"alone":        {long, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Overruns(test.own, test.neighbours); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
