package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	nodeHeader = "sn,cpu_milli,memory_mib,gpu,model\n"
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
	want := []Node{{"a", 64000, 262144, 2, "P100"}, {"b", 32000, 1024, 0, ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
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
		"unknown model":    {nodes, nodeHeader + "a,1,1,2,H9000\n", `line 2, column model: unknown GPU model "H9000"`},
		"absurd node":      {nodes, nodeHeader + "a,1,1,2000,T4\n", "line 2, column gpu"},
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
