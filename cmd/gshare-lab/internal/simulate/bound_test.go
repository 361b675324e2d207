package simulate

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
)

// What is packed and what every policy allocates is within the limits, and what is not allocated has a reason.
func TestSimulateBound(t *testing.T) {
	_, args := simulateFiles(t, nodeRows, podRows)
	args[1] = "bound"
	out, code, err := gshare(t, append(args, "--policy", "all", "--tries", "100", "-o", "json", "--seed", "5")...)
	if err != nil || code != 0 {
		t.Fatal(err)
	}
	var seen []map[string]any
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		t.Fatal(err)
	}
	allocated := map[string]float64{}
	for _, s := range seen {
		policy, percent := s["policy"].(string), s["allocation_percent"].(float64)
		allocated[policy] = percent
		if slices.Contains([]string{clairvoyant, accepting, packed, accepted}, policy) {
			continue
		}
		sum := percent
		for _, why := range []string{"fragment", "model", "cpu", "memory", "unwanted"} {
			sum += s["idle_"+why].(float64)
		}
		if percent > allocated[accepting] || math.Abs(sum-100) > 1e-6 {
			t.Errorf("%s: %v, the limit is %.2f %%", policy, s, allocated[accepting])
		}
	}
	if allocated[accepted] > allocated[accepting] || allocated[accepted] < 50 {
		t.Errorf("allocated %v", allocated)
	}
	if len(seen) != 13 || allocated[packed] > allocated[clairvoyant] || allocated[accepting] > allocated[clairvoyant] || allocated[packed] < 50 {
		t.Errorf("allocated %v", allocated)
	}
}

// A limit for another seed or load is computed again.
func TestSimulateBoundRepeats(t *testing.T) {
	_, args := simulateFiles(t, nodeRows, podRows)
	args[1] = "bound"
	both, _, err := gshare(t, append(args, "--policy", "clairvoyant,packed", "--runs", "2", "-o", "json", "--load", "0.7")...)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := gshare(t, append(args, "--policy", "clairvoyant,packed", "--runs", "2", "-o", "json", "--load", "0.7")...)
	if err != nil || again != both {
		t.Errorf("%v: %s, then %s", err, both, again)
	}
}
