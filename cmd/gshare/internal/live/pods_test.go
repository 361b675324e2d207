package live

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// What a pod holds today, and what it would ask of gshare.
func TestShares(t *testing.T) {
	measured := usage.Table{{Namespace: "ml", Name: "p"}: {SM: 23, MemoryMiB: 5000}}
	sliced := with(a100, labelReplicas, "4")
	single := map[string]string{labelProduct: product + "-MIG-2g.20gb"}
	for name, c := range map[string]struct {
		labels map[string]string
		usage  usage.Table
		limits []string
		held   int64 // thousandths of a GPU
		vgpus  int
		sm     share.PerMille
		memory int64 // MiB of each
	}{
		"one GPU":            {a100, nil, []string{"nvidia.com/gpu", "1"}, 1000, 1, 500, 40960},
		"one GPU, measured":  {a100, measured, []string{"nvidia.com/gpu", "1"}, 1000, 1, 230, 5000},
		"two GPUs":           {a100, nil, []string{"nvidia.com/gpu", "2"}, 2000, 2, 1000, 81920},
		"two GPUs, measured": {a100, measured, []string{"nvidia.com/gpu", "2"}, 2000, 2, 230, 5000},
		"time-sliced":        {sliced, nil, []string{"nvidia.com/gpu.shared", "1"}, 250, 1, 250, 20480},
		"MIG":                {a100, nil, []string{"nvidia.com/mig-3g.40gb", "1"}, 428, 1, 420, 38120},
		"MIG with media":     {a100, nil, []string{"nvidia.com/mig-1g.10gb.me", "1"}, 142, 1, 140, 9530},
		"MIG of an A30":      {a100, nil, []string{"nvidia.com/mig-2g.12gb", "1"}, 500, 1, 500, 11436},
		"MIG as GPUs":        {single, nil, []string{"nvidia.com/gpu", "1"}, 285, 1, 280, 19060},
		"MIG nobody knows":   {a100, nil, []string{"nvidia.com/mig-9g.90gb", "1"}, 1000, 1, 1000, 81920},
		"HAMi":               {a100, nil, []string{"nvidia.com/gpu", "1", "nvidia.com/gpumem", "8192", "nvidia.com/gpucores", "30"}, 300, 1, 300, 8192},
		"HAMi, memory alone": {a100, nil, []string{"nvidia.com/gpu", "1", "nvidia.com/gpumem", "8192"}, 100, 1, 100, 8192},
		"Volcano":            {a100, nil, []string{"volcano.sh/vgpu-number", "1", "volcano.sh/vgpu-cores", "50"}, 500, 1, 500, 81920},
		"another maker":      {with(a100, labelCount, "4"), measured, []string{"amd.com/gpu", "1"}, 1000, 1, 1000, 81920},
		"gshare":             {a100, measured, []string{"gshare/sm", "24", "gshare/quota", "40", "gshare/mem", "8192", "gshare/vgpu", "1"}, 0, 1, 240, 8192},
	} {
		t.Run(name, func(t *testing.T) {
			has := []string{"nvidia.com/gpu", "4"}
			got := mustRead(t, Options{Usage: c.usage}, node(t, "n", c.labels, has...), pod(t, "p", "n", c.limits...))
			if len(got.Pods) != 1 || len(got.Pods[0].Request.Containers) != 1 {
				t.Fatalf("%+v", got.Pods)
			}
			p, asked := got.Pods[0], got.Pods[0].Request.Containers[0]
			if c.labels[labelMemory] == "" {
				c.memory = min(c.memory, 40960)
			}
			if int64(p.Held) != c.held || asked.VGPUs != c.vgpus || asked.Share.SMRequest != c.sm || asked.Share.Memory != share.Bytes(c.memory)*share.MiB {
				t.Errorf("%s: holds %d, asks %d times for %s; want %d, %d times %d per mille and %d MiB",
					name, p.Held, asked.VGPUs, asked.Share, c.held, c.vgpus, c.sm, c.memory)
			}
		})
	}
}

func TestAnnotationsAreObeyed(t *testing.T) {
	p := pod(t, "p", "n", "nvidia.com/gpu", "1")
	p.Annotations = map[string]string{"gshare.dev/sm-limit": "80", "gshare.dev/workload": "resnet"}
	bad := pod(t, "bad", "n", "nvidia.com/gpu", "1")
	bad.Annotations = map[string]string{"gshare.dev/sm-limit": "10"} // below the share that is assumed
	c := mustRead(t, Options{}, node(t, "n", a100, "nvidia.com/gpu", "4"), p, bad)
	if r := c.Pods[0].Request; r.Workload != "resnet" || r.Containers[0].Share.SMLimit != 800 {
		t.Errorf("asks for %+v", r)
	}
	if r := c.Pods[1].Request; !r.Containers[0].Share.IsWhole() {
		t.Errorf("a pod that gshare would refuse counts with %+v", r)
	}
	if !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.Contains(n, "ml/bad") && strings.Contains(n, "sm-limit") }) {
		t.Errorf("no note says why: %q", c.Notes)
	}
}

// TestSharedInstances: instances that have given up their SM-time need memory alone, and fit beside another one that has the whole.
func TestSharedInstances(t *testing.T) {
	limits := []string{"gshare/sm", "100", "gshare/quota", "60", "gshare/mem", "8192", "gshare/vgpu", "1"}
	pods := []*v1.Pod{pod(t, "a", "n", limits...), pod(t, "b", "n", limits...), pod(t, "c", "n", limits...)}
	for _, p := range pods[:2] {
		const shared = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
		p.Annotations = map[string]string{"gshare.dev/residency": shared, "gshare.dev/residency-reached": shared}
	}
	c := mustRead(t, Options{}, gshareNode(t, "n"), pods[0], pods[1], pods[2])
	for at, want := range []share.PerMille{0, 0, 1000} {
		if s := c.Pods[at].Request.Containers[0].Share; s.SMRequest != want || s.Memory != 8192*share.MiB {
			t.Errorf("%s counts with %s", c.Pods[at].Name, s)
		}
	}
	if rows := whatif.Compare(c.Nodes, c.Pods); len(rows) != 1 || rows[0].NeededGPUs != 1 || len(rows[0].Unplaced) > 0 {
		t.Errorf("%+v", rows)
	}
}

// TestParkedInTurn: instances of class swap count with all of their memory while they wait for their turn, as it may come at any time.
func TestParkedInTurn(t *testing.T) {
	const wanted = `{"v":1,"residency":{"seq":2,"level":"Warm","drained":true}}`
	const reached = `{"v":1,"residency":{"seq":2,"level":"Warm","memory":1048576}}`
	for class, want := range map[string]share.Bytes{"swap": 8 << 30, "mps": 1 << 20} {
		p := pod(t, "p", "n", "gshare/sm", "100", "gshare/quota", "100", "gshare/mem", "8192", "gshare/vgpu", "1")
		p.Annotations = map[string]string{"gshare.dev/isolation": class, "gshare.dev/residency": wanted, "gshare.dev/residency-reached": reached}
		c := mustRead(t, Options{}, gshareNode(t, "n"), p)
		if got := c.Pods[0].Request.Containers[0].Share.Memory; got != want {
			t.Errorf("%s counts with %d bytes, want %d", class, got, want)
		}
	}
}

func TestWhatIsCounted(t *testing.T) {
	done := pod(t, "done", "n", "nvidia.com/gpu", "1")
	done.Status.Phase = v1.PodSucceeded
	other := pod(t, "other", "n", "nvidia.com/gpu", "1")
	other.Namespace = "web"
	c := mustRead(t, Options{Namespaces: []string{"ml"}},
		node(t, "n", a100, "nvidia.com/gpu", "4"), node(t, "cpu", nil),
		pod(t, "second", "n", "nvidia.com/gpu", "1", "cpu", "3"), pod(t, "waits", "", "nvidia.com/gpu", "1"),
		done, other, pod(t, "web", "n", "cpu", "10", "memory", "12Gi"), pod(t, "elsewhere", "cpu", "cpu", "1"))
	if len(c.Pods) != 1 || c.Pods[0].Name != "ml/second" || c.Pods[0].CPU != 3000 {
		t.Errorf("pods %+v", c.Pods)
	}
	if len(c.Nodes) != 1 || c.Nodes[0].CPU != 54000 || c.Nodes[0].RAM != 500<<30 {
		t.Errorf("nodes %+v, want one with 64 - 10 CPUs and 500 GiB left", c.Nodes)
	}
	for _, want := range []string{"pending GPU pods, not counted: 1", "other namespaces, not counted: their GPUs are taken as free: 1", "assumed to need sm=50,quota=100,mem=50%: 1"} {
		if !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no note says %q: %q", want, c.Notes)
		}
	}
}

func TestOldestFirst(t *testing.T) {
	a, b := pod(t, "z", "n", "nvidia.com/gpu", "1"), pod(t, "a", "n", "nvidia.com/gpu", "1")
	c := mustRead(t, Options{}, node(t, "n", a100, "nvidia.com/gpu", "4"), b, a)
	if len(c.Pods) != 2 || c.Pods[0].Name != "ml/z" {
		t.Errorf("pods %+v", c.Pods)
	}
}

// TestClaimant: the device of a claim is held by the container that uses the claim, else by the first one, if there is one.
func TestClaimant(t *testing.T) {
	uses := v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"}}}
	for name, test := range map[string]struct {
		spec v1.PodSpec
		want string
	}{
		"no containers": {v1.PodSpec{}, ""},
		"only init":     {v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}}, "i"},
		"nobody":        {v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}, InitContainers: []v1.Container{{Name: "i"}}}, "a"},
		"second":        {v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b", Resources: uses}}}, "b"},
		"init":          {v1.PodSpec{Containers: []v1.Container{{Name: "a"}}, InitContainers: []v1.Container{{Name: "i", Resources: uses}}}, "i"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := claimant(&v1.Pod{Spec: test.spec}); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
