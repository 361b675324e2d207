package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

const (
	nodeHeader = "sn,cpu_milli,memory_mib,gpu,model\n"
	ownHeader  = "sn,cpu_milli,memory_mib,gpu,model,gpu_memory_mib,gpu_sms\n"
	podHeader  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
)

func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadNodes(t *testing.T) {
	got, err := ReadNodes(file(t, nodeHeader+"a,64000,262144,2,P100\nb,32000,1024,0,\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{"a", 64000, 262144, 2, "P100", Device{16384, 56}}, {Name: "b", MilliCPU: 32000, MemoryMiB: 1024}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOwnModels: any GPU can be named that the columns describe, beside known ones, and its nodes have it.
func TestOwnModels(t *testing.T) {
	got, err := ReadNodes(file(t, ownHeader+"a,1,1,4,A100,81920,108\nb,1,1,1,T4,,\nc,1,1,0,,,\nd,1,1,1,T4,15360,40\ne,1,1,1,NVIDIA H200,143771,132\n"))
	if err != nil {
		t.Fatal(err)
	}
	var devices []Device
	for _, n := range got {
		devices = append(devices, n.Device)
	}
	want := []Device{{81920, 108}, {16384, 40}, {}, {15360, 40}, {143771, 132}}
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Error(diff)
	}
	node, err := got[4].Object()
	if err != nil {
		t.Fatal(err)
	}
	inventory, _, err := kube.InventoryOf(node)
	if s := inventory.Slices[0]; err != nil || s.Model != "NVIDIA H200" || s.SMs != 132 || s.MemoryMiB != 143771 {
		t.Errorf("the node has %+v, %v", s, err)
	}
}

func TestReadPods(t *testing.T) {
	got, err := ReadPods(file(t, podHeader+"p,1000,512,1,460,V100M16|V100M32,LS\nq,1,2,0,0,,BE\nr,1,2,8,1000,,LS\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Pod{
		{Name: "p", MilliCPU: 1000, MemoryMiB: 512, GPUs: 1, MilliGPU: 460, Models: []string{"V100M16", "V100M32"}},
		{Name: "q", MilliCPU: 1, MemoryMiB: 2},
		{Name: "r", MilliCPU: 1, MemoryMiB: 2, GPUs: 8, MilliGPU: 1000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadLists(t *testing.T) {
	pods := func(f string) error { _, err := ReadPods(f); return err }
	nodes := func(f string) error { _, err := ReadNodes(f); return err }
	tests := map[string]struct {
		read       func(string) error
		text, want string
	}{
		"empty file":       {pods, "", "read header"},
		"no rows":          {pods, podHeader, "no rows"},
		"missing column":   {pods, "name,cpu_milli\np,1\n", "line 1: no column memory_mib, num_gpu, gpu_milli"},
		"short row":        {pods, podHeader + "p,1\n", "record on line 2"},
		"not a number":     {pods, podHeader + "p,x,1,1,500,,\n", `line 2, column cpu_milli: "x" is not a count`},
		"negative":         {pods, podHeader + "p,1,-1,1,500,,\n", `line 2, column memory_mib`},
		"no name":          {pods, podHeader + ",1,1,1,500,,\n", "line 2, column name: is empty"},
		"zero milli":       {pods, podHeader + "p,1,1,1,0,,\n", "line 2, column gpu_milli: 0 is not between 1 and 1000"},
		"too much milli":   {pods, podHeader + "ok,1,1,1,1,,\np,1,1,1,1001,,\n", "line 3, column gpu_milli"},
		"several in parts": {pods, podHeader + "p,1,1,2,500,,\n", "several GPUs must be whole"},
		"absurd":           {pods, podHeader + "p,1,1,9999999,1000,,\n", "line 2, column num_gpu"},
		"unknown model": {nodes, nodeHeader + "a,1,1,2,H9000\n", `line 2, column model: unknown GPU model "H9000": fill in the columns gpu_memory_mib and gpu_sms, ` +
			"too, or use a model of A10, G2, G3, P100, T4, V100M16, V100M32"},
		"no model":        {nodes, nodeHeader + "a,1,1,2,\n", "line 2, column model: unknown GPU model"},
		"only memory":     {nodes, ownHeader + "a,1,1,2,A100,81920,\n", `line 2, column gpu_sms: "" is not a count`},
		"only SMs":        {nodes, ownHeader + "a,1,1,2,A100,,108\n", `line 2, column gpu_memory_mib: "" is not a count`},
		"no memory":       {nodes, ownHeader + "a,1,1,2,A100,0,108\n", "line 2, column gpu_memory_mib: 0 is not between 1 and 1073741824"},
		"memory in bytes": {nodes, ownHeader + "a,1,1,2,A100,85899345920,108\n", "line 2, column gpu_memory_mib: 85899345920 is not"},
		"cores for SMs":   {nodes, ownHeader + "a,1,1,2,A100,81920,6912\n", "line 2, column gpu_sms: 6912 is not between 1 and 4096"},
		"two models":      {nodes, ownHeader + "a,1,1,2,A100|H100,81920,108\n", `line 2, column model: "A100|H100" is not the name`},
		"no model, sized": {nodes, ownHeader + "a,1,1,2,,81920,108\n", `line 2, column model: "" is not the name`},
		"absurd node":     {nodes, nodeHeader + "a,1,1,2000,T4\n", "line 2, column gpu"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := file(t, tt.text)
			err := tt.read(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q and the file's name", err, tt.want)
			}
		})
	}
}

func TestNoSuchFile(t *testing.T) {
	if _, err := ReadPods("/nonexistent.csv"); err == nil || !strings.Contains(err.Error(), "/nonexistent.csv") {
		t.Errorf("got %v", err)
	}
}

func FuzzReadPods(f *testing.F) {
	f.Add(podHeader + "p,1000,512,1,460,V100M16|V100M32,LS\n")
	f.Add(podHeader + "\"a\nb\",1,1,8,1000,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := read(text, []string{"name"}, podOf)
		if err == nil && len(pods) == 0 {
			t.Error("no pods and no error")
		}
		for _, p := range pods {
			if p.TotalMilli() < 0 || p.GPUs > maxGPUs {
				t.Errorf("accepted %+v", p)
			}
		}
	})
}
