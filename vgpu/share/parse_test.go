package share

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestNewContainer(t *testing.T) {
	cases := map[string]struct {
		raw    RawContainer
		limits Limits
		want   Container
	}{
		"one vGPU": {
			raw:  RawContainer{SM: new(int64(24)), Quota: new(int64(40)), Memory: new(int64(8192)), VGPUs: new(int64(1))},
			want: Container{VGPUs: 1, Share: Share{240, 240, 400, 400, 8192 * MiB}},
		},
		"quota defaults to 100": {
			raw:  RawContainer{SM: new(int64(1)), Memory: new(int64(1)), VGPUs: new(int64(1))},
			want: Container{VGPUs: 1, Share: Share{10, 10, 1000, 1000, MiB}},
		},
		"totals are divided": {
			raw:  RawContainer{SM: new(int64(200)), Memory: new(int64(300)), VGPUs: new(int64(4))},
			want: Container{VGPUs: 4, Share: Share{500, 500, 1000, 1000, 75 * MiB}},
		},
		"limits are per vGPU": {
			raw:    RawContainer{SM: new(int64(200)), Memory: new(int64(300)), VGPUs: new(int64(4))},
			limits: Limits{SM: new(int64(80))},
			want:   Container{VGPUs: 4, Share: Share{500, 800, 1000, 1000, 75 * MiB}},
		},
		"quota limit above the request": {
			raw:    RawContainer{SM: new(int64(30)), Quota: new(int64(40)), Memory: new(int64(1)), VGPUs: new(int64(1))},
			limits: Limits{Quota: new(int64(80))},
			want:   Container{VGPUs: 1, Share: Share{300, 300, 400, 800, MiB}},
		},
		"the most": {
			raw:  RawContainer{SM: new(int64(6400)), Memory: new(int64(MaxMemory / MiB)), VGPUs: new(int64(64))},
			want: Container{VGPUs: 64, Share: Share{1000, 1000, 1000, 1000, MaxMemory / 64}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Name = "c"
			got, err := NewContainer("c", tc.raw, tc.limits)
			if err != nil || got != tc.want {
				t.Errorf("NewContainer = %+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}

func TestNewContainerRefuses(t *testing.T) {
	good := RawContainer{SM: new(int64(24)), Quota: new(int64(40)), Memory: new(int64(8192)), VGPUs: new(int64(1))}
	cases := map[string]struct {
		change  func(*RawContainer)
		limits  Limits
		wantErr string
	}{
		"nothing written":           {func(r *RawContainer) { *r = RawContainer{} }, Limits{}, "gshare/sm: a share needs it"},
		"quota without sm":          {func(r *RawContainer) { *r = RawContainer{Quota: new(int64(50))} }, Limits{}, "gshare/sm: a share needs it"},
		"memory without sm":         {func(r *RawContainer) { *r = RawContainer{Memory: new(int64(50))} }, Limits{}, "gshare/sm: a share needs it"},
		"no vgpu":                   {func(r *RawContainer) { r.VGPUs = nil }, Limits{}, "gshare/vgpu: a share needs gshare/vgpu"},
		"no memory":                 {func(r *RawContainer) { r.Memory = nil }, Limits{}, "gshare/mem: a share needs it"},
		"sm 0":                      {func(r *RawContainer) { r.SM = new(int64(0)) }, Limits{}, "gshare/sm: 0 percent points is outside 1 to 6400"},
		"sm negative":               {func(r *RawContainer) { r.SM = new(int64(-24)) }, Limits{}, "gshare/sm: -24 percent points is outside"},
		"sm overflow":               {func(r *RawContainer) { r.SM = new(int64(math.MaxInt64)) }, Limits{}, "gshare/sm: 9223372036854775807 percent points is outside"},
		"quota 0":                   {func(r *RawContainer) { r.Quota = new(int64(0)) }, Limits{}, "gshare/quota: 0 percent is outside 1 to 100"},
		"quota 101":                 {func(r *RawContainer) { r.Quota = new(int64(101)) }, Limits{}, "gshare/quota: 101 percent is outside 1 to 100"},
		"quota overflow":            {func(r *RawContainer) { r.Quota = new(int64(math.MinInt64)) }, Limits{}, "gshare/quota: -9223372036854775808 percent"},
		"memory 0":                  {func(r *RawContainer) { r.Memory = new(int64(0)) }, Limits{}, "gshare/mem: 0 MiB is outside"},
		"memory negative":           {func(r *RawContainer) { r.Memory = new(int64(-1)) }, Limits{}, "gshare/mem: -1 MiB is outside"},
		"memory overflow":           {func(r *RawContainer) { r.Memory = new(int64(math.MaxInt64)) }, Limits{}, "gshare/mem: 9223372036854775807 MiB is outside"},
		"vgpu 0":                    {func(r *RawContainer) { r.VGPUs = new(int64(0)) }, Limits{}, "gshare/vgpu: 0 vGPUs is outside 1 to 64"},
		"vgpu negative":             {func(r *RawContainer) { r.VGPUs = new(int64(-1)) }, Limits{}, "gshare/vgpu: -1 vGPUs is outside"},
		"vgpu overflow":             {func(r *RawContainer) { r.VGPUs = new(int64(1 << 62)) }, Limits{}, "gshare/vgpu: 4611686018427387904 vGPUs"},
		"sm uneven":                 {func(r *RawContainer) { r.SM, r.VGPUs = new(int64(30)), new(int64(4)) }, Limits{}, "gshare/sm: 30 percent points cannot be divided evenly among 4 vGPUs"},
		"memory uneven":             {func(r *RawContainer) { r.Memory, r.VGPUs = new(int64(5)), new(int64(2)) }, Limits{}, "gshare/mem: 5 MiB cannot be divided evenly among 2 vGPUs"},
		"sm beyond a slice":         {func(r *RawContainer) { r.SM = new(int64(150)) }, Limits{}, "gshare/sm: 150 percent points need at least 2 vGPUs, not 1: a slice has 100"},
		"quota with several vGPUs":  {func(r *RawContainer) { r.VGPUs = new(int64(2)) }, Limits{}, "gshare/quota: 40% with 2 vGPUs"},
		"sm-limit 0":                {func(*RawContainer) {}, Limits{SM: new(int64(0))}, "gshare.dev/sm-limit: 0 percent is outside 1 to 100"},
		"sm-limit 101":              {func(*RawContainer) {}, Limits{SM: new(int64(101))}, "gshare.dev/sm-limit: 101 percent is outside"},
		"sm-limit overflow":         {func(*RawContainer) {}, Limits{SM: new(int64(math.MaxInt64))}, "gshare.dev/sm-limit: 9223372036854775807 percent"},
		"sm-limit below request":    {func(*RawContainer) {}, Limits{SM: new(int64(20))}, "gshare.dev/sm-limit: 20% is below the request of 24%"},
		"quota-limit below request": {func(*RawContainer) {}, Limits{Quota: new(int64(39))}, "gshare.dev/quota-limit: 39% is below the request of 40%"},
		"quota-limit 101":           {func(*RawContainer) {}, Limits{Quota: new(int64(101))}, "gshare.dev/quota-limit: 101 percent is outside"},
		"both elastic":              {func(*RawContainer) {}, Limits{SM: new(int64(48))}, "gshare.dev/sm-limit: SMs above the request (24%-48%) and a quota below 100% (40%)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			raw := good
			tc.change(&raw)
			got, err := NewContainer("main", raw, tc.limits)
			wantRefusal(t, err, `container "main": `+tc.wantErr)
			if got != (Container{}) {
				t.Errorf("a refused container is %+v, want none", got)
			}
		})
	}
}

func TestParsePercent(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "48": 48, "-3": -3} {
		t.Run(text, func(t *testing.T) {
			if got, err := ParsePercent(FieldSMLimit, text); err != nil || *got != want {
				t.Errorf("ParsePercent(%q) = %v, %v, want %d", text, got, err, want)
			}
		})
	}
	if got, err := ParsePercent(FieldSMLimit, ""); got != nil || err != nil {
		t.Errorf("an empty text gives %v, %v, want not written", got, err)
	}
	for _, text := range []string{" ", "48%", "4.5", "+48", "048", "-0", " 48", "1e2", "0x10", "1_0", "9223372036854775808", "x"} {
		_, err := ParsePercent(FieldSMLimit, text)
		wantRefusal(t, err, "gshare.dev/sm-limit: ")
	}
}

func TestRefusalsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<18)
	_, percentErr := ParsePercent(FieldSMLimit, long)
	_, termsErr := NewTerms(RawTerms{Model: long})
	_, containerErr := NewContainer(long, RawContainer{}, Limits{})
	for _, err := range []error{percentErr, termsErr, containerErr} {
		if err == nil || len(err.Error()) > 256 {
			t.Errorf("want a short refusal, got %d bytes", len(err.Error()))
		}
	}
}

func wantRefusal(t *testing.T, err error, prefix string) {
	t.Helper()
	var field *FieldError
	if !errors.As(err, &field) {
		t.Fatalf("error %v is no FieldError, want %q", err, prefix)
	}
	if !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("error is\n%q, want it to start with\n%q", err, prefix)
	}
}
