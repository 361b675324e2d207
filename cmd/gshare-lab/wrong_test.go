package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/test/wrong"
)

// TestWrongValues: no wrong value of a flag is taken, crashes a command, or is answered with an error for programmers.
func TestWrongValues(t *testing.T) {
	serving, err := filepath.Abs("internal/simulate/testdata/serving")
	if err != nil {
		t.Fatal(err)
	}
	words, err := filepath.Abs("../../serving/rules/pipeline/testdata/words.json")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"nodes.csv": "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\n",
		"pods.csv":  "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,4000,1024,1,500\n",
		"events.txt": "{'Time': '2024-01-01 00:00:00', 'Action': 'start', 'Instance': {'service_name': 'a', 'type': 'inference', 'gpu_num': 1, " +
			"'sm_requests': 0.25, 'sm_limits': 0.5, 'memory': [10]}}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trace := []string{"--nodes", "nodes.csv", "--pods", "pods.csv"}
	wrong.Program{Root: root, Lines: map[string][]string{
		"replay": trace, "simulate cluster": trace, "simulate bound": trace, "simulate rebalance": trace, "results": {"--dir", "."},
		"cut": {"--build", words, "--slice=a=cpu:8Gi"}, "simulate events": {"--file", "events.txt"}, "simulate shapes": {"--family", "openb"},
		"simulate serving": {"--trace", filepath.Join(serving, "rates.txt"), "--profiles", filepath.Join(serving, "example.yaml")},
	}, Taken: map[string]string{"simulate serving --use contents": "it is written", "simulate serving --trace number": "a trace of one number"}}.Try(t)
}
