package share

import (
	"strings"
	"testing"
)

// FuzzNewContainer checks that an accepted container is valid, and that its shares add up to what was written.
func FuzzNewContainer(f *testing.F) {
	f.Add(int64(24), int64(40), int64(8192), int64(1), int64(24), int64(80))
	f.Add(int64(200), int64(100), int64(300), int64(4), int64(80), int64(100))
	f.Add(int64(-1), int64(1<<62), int64(0), int64(-1<<63), int64(101), int64(0))
	f.Fuzz(func(t *testing.T, sm, quota, memory, vgpus, smLimit, quotaLimit int64) {
		c, err := NewContainer("c", RawContainer{&sm, &quota, &memory, &vgpus}, Limits{&smLimit, &quotaLimit})
		if err != nil {
			wantRefusal(t, err, `container "c": gshare`)
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("accepted %+v, which is invalid: %v", c, err)
		}
		n := int64(c.VGPUs)
		if n != vgpus || n*int64(c.Share.SMRequest) != 10*sm || n*int64(c.Share.Memory/MiB) != memory || int64(c.Share.QuotaRequest) != 10*quota {
			t.Errorf("sm %d, quota %d, mem %d on %d vGPUs became %+v", sm, quota, memory, vgpus, c)
		}
		if got, want := (Request{Containers: []Container{c}}).Area(), Area(100*sm*quota); got != want {
			t.Errorf("area is %d, want 100 x sm-time %d", got, want)
		}
	})
}

// FuzzNewTerms checks that accepted terms are valid and that parsing them again returns the same.
func FuzzNewTerms(f *testing.F) {
	f.Add("slo", "mps", "A100, H200", "resnet", "1g.18gb", "strict", "sha256:"+strings.Repeat("0a", 32)+"=2634Mi", "spread", "bert")
	f.Add("", "", "", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, class, isolation, models, workload, slice, enforcement, weights, packing, apart string) {
		terms, err := NewTerms(RawTerms{class, isolation, models, workload, slice, enforcement, weights, packing, apart})
		if err != nil {
			wantRefusal(t, err, "gshare.dev/")
			return
		}
		if err := terms.Validate(); err != nil {
			t.Errorf("accepted %+v, which is invalid: %v", terms, err)
		}
		for _, name := range terms.Models {
			if again := splitModels(name); len(again) != 1 || again[0] != name {
				t.Errorf("model %q reads again as %q", name, again)
			}
		}
	})
}
