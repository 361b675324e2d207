package core

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/tokenserver"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestSlices: a holder is served on those of its slices that the node has, with the positions that its devices have in it, and uses MPS
// unless it is alone.
func TestSlices(t *testing.T) {
	for name, test := range map[string]struct {
		class  share.Isolation
		slices []string
		served []int // positions
		pipe   string
		mps    error
	}{
		"shared":      {share.MPS, []string{"a"}, []int{0}, "UUID-a", nil},
		"alone":       {share.Exclusive, []string{"a", "b"}, []int{0, 1}, "", nil},
		"one is gone": {share.Exclusive, []string{"gone", "b"}, []int{1}, "", nil},
		"all gone":    {share.Elastic, []string{"gone"}, nil, "", ErrMissing},
	} {
		t.Run(name, func(t *testing.T) {
			uuid := func(slice string) string { return strings.TrimSuffix("UUID-"+slice, "UUID-gone") }
			s := NewSlices(config.Configuration{Directory: t.TempDir()}.WithDefaults(), mps.Daemons{Dir: "/pipes", Simulated: true},
				slog.New(slog.DiscardHandler), uuid, func() {})
			t.Cleanup(s.Close)
			h := &Holder{ID: "x"}
			for _, slice := range test.slices {
				h.VGPUs = append(h.VGPUs, kube.PlacedVGPU{Slice: slice, Class: test.class, Share: share.Share{
					SMRequest: 500, SMLimit: 500, QuotaRequest: 500, QuotaLimit: 500, Memory: share.MiB,
				}})
			}
			if endpoint, err := s.OpenMPS(h); !errors.Is(err, test.mps) || !strings.HasSuffix(endpoint.PipeDir, test.pipe) || (endpoint.PipeDir == "") != (test.pipe == "") {
				t.Errorf("MPS at %q, %v", endpoint.PipeDir, err)
			}
			c, err := s.Reserve(h, tokenserver.Spec{Dir: t.TempDir()})
			if len(test.served) == 0 {
				if !errors.Is(err, ErrMissing) {
					t.Errorf("served: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Suspend()
			for i, v := range c.Status().VGPUs {
				if want := test.served[i]; v.Index != want || v.UUID != "UUID-"+test.slices[want] || len(c.Status().VGPUs) != len(test.served) {
					t.Errorf("vGPU %d: %d, %s", i, v.Index, v.UUID)
				}
			}
		})
	}
}
