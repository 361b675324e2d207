package simulate

import (
	"encoding/json"
	"testing"
)

func TestSimulateRebalance(t *testing.T) {
	_, args := simulateFiles(t, nodeRows, podRows)
	args[1] = "rebalance"
	out, code, err := gshare(t, append(args, "--policy", "all", "--left", "0.5", "-o", "json")...)
	if err != nil || code != 0 {
		t.Fatal(err)
	}
	var seen []map[string]any
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		t.Fatal(err)
	}
	used := map[string]float64{}
	for _, s := range seen {
		used[s["policy"].(string)] = s["gpus_in_use"].(float64)
	}
	if len(used) != 5 || used[rebalanced] > used[churned] || used[fresh] > used[rebalanced] || used[fresh] < 1 {
		t.Errorf("%v", used)
	}
}

func TestSimulateRebalanceUsageErrors(t *testing.T) {
	_, files := simulateFiles(t, nodeRows, podRows)
	files[1] = "rebalance"
	for name, args := range map[string][]string{
		"load": {"--load", "1.3"}, "turnover": {"--turnover", "-1"}, "left": {"--left", "0"}, "not a number": {"--left", "NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, code, err := gshare(t, append(files[:len(files):len(files)], args...)...); err == nil || code != 2 {
				t.Errorf("exit code %d: %v", code, err)
			}
		})
	}
}
