package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestNodeObject(t *testing.T) {
	node, err := Node{Name: "a", MilliCPU: 64000, MemoryMiB: 1024, GPUs: 2, Model: "V100M32"}.Object()
	if err != nil {
		t.Fatal(err)
	}
	inv, present, err := kube.InventoryOf(node)
	if err != nil || !present {
		t.Fatalf("inventory: %v, present %v", err, present)
	}
	if len(inv.Slices) != 2 || inv.Slices[0].MemoryMiB != 32<<10 || !inv.Slices[1].Healthy {
		t.Errorf("inventory is %+v", inv)
	}
	if got := node.Status.Allocatable[kube.ResourceMemory]; got.Value() != 2*32<<10 {
		t.Errorf("advertised memory is %s", got.String())
	}
}

func TestNodeWithoutGPUs(t *testing.T) {
	node, err := Node{Name: "a", MilliCPU: 1, MemoryMiB: 1}.Object()
	if err != nil {
		t.Fatal(err)
	}
	if _, present, _ := kube.InventoryOf(node); present {
		t.Error("a node without GPUs has an inventory")
	}
}

func TestPodObject(t *testing.T) {
	gpus := Devices([]Node{
		{GPUs: 1, Model: "G2"}, {GPUs: 1, Model: "T4"}, {GPUs: 1, Model: "V100M32"}, {Model: "no GPU"},
		{GPUs: 1, Model: "A100", Device: Device{81920, 108}}, {GPUs: 1, Model: "A100", Device: Device{40960, 108}},
	})
	tests := map[string]struct {
		pod    Pod
		vgpus  int
		want   share.Share // of each vGPU
		models []string
	}{
		"part of any": {
			pod: Pod{GPUs: 1, MilliGPU: 455}, vgpus: 1,
			want: share.Share{SMRequest: 460, SMLimit: 460, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 7454 * share.MiB},
		},
		"part of a model": {
			pod: Pod{GPUs: 1, MilliGPU: 500, Models: []string{"V100M32"}}, vgpus: 1, models: []string{"V100M32"},
			want: share.Share{SMRequest: 500, SMLimit: 500, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 16384 * share.MiB},
		},
		"part of the smallest of a model of its own": {
			pod: Pod{GPUs: 1, MilliGPU: 500, Models: []string{"A100"}}, vgpus: 1, models: []string{"A100"},
			want: share.Share{SMRequest: 500, SMLimit: 500, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 20480 * share.MiB},
		},
		"several": {
			pod: Pod{GPUs: 4, MilliGPU: 1000}, vgpus: 4,
			want: share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 16384 * share.MiB},
		},
		"timed, smallest": {
			pod: Pod{GPUs: 1, MilliGPU: 460, Timed: 1}, vgpus: 1,
			want: share.Share{SMRequest: 500, SMLimit: 500, QuotaRequest: 920, QuotaLimit: 920, Memory: 7536 * share.MiB},
		},
		"timed, next": {
			pod: Pod{GPUs: 1, MilliGPU: 460, Timed: 2}, vgpus: 1,
			want: share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: 770, QuotaLimit: 770, Memory: 7536 * share.MiB},
		},
		"timed, no next": {
			pod: Pod{GPUs: 1, MilliGPU: 900, Timed: 2}, vgpus: 1,
			want: share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 900, QuotaLimit: 900, Memory: 14745 * share.MiB},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, asks, err := kube.RequestOf(tt.pod.Object("gshare", gpus))
			if err != nil || !asks {
				t.Fatalf("asks %v: %v", asks, err)
			}
			want := []share.Container{{Name: "main", VGPUs: tt.vgpus, Share: tt.want}}
			if diff := cmp.Diff(want, req.Containers); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.models, req.Models); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlainPod(t *testing.T) {
	if kube.RequestsShare(Pod{Name: "p", MilliCPU: 1, MemoryMiB: 1}.Object("gshare", nil)) {
		t.Error("a pod without GPUs asks for a share")
	}
}

// A sample has the proportions of the trace: its pods want nearly all GPUs of its nodes.
func TestSample(t *testing.T) {
	nodes, pods, err := Sample(3000, 7)
	if err != nil {
		t.Fatal(err)
	}
	var has, wants int64
	for _, n := range nodes {
		has += int64(n.GPUs) * 1000
	}
	for _, p := range pods {
		wants += p.TotalMilli()
	}
	if len(pods) != 3000 || wants < has*9/10 || wants > has*105/100 {
		t.Errorf("%d pods want %d of %d milli-GPU", len(pods), wants, has)
	}
	_, again, _ := Sample(3000, 7)
	if diff := cmp.Diff(pods, again); diff != "" {
		t.Errorf("the same seed drew other pods: %s", diff)
	}
}

func TestReplicate(t *testing.T) {
	nodes, pods := Replicate([]Node{{Name: "n"}}, []Pod{{Name: "p"}}, 3)
	if len(nodes) != 3 || len(pods) != 3 || nodes[2].Name != "n-2" || pods[1].Name != "p-1" {
		t.Errorf("got %v and %v", nodes, pods)
	}
}
