package shapes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The checker looks at nothing but which pod is on which GPU. It asks for a table of turns for each GPU and proves with
// it that every pod gets its quota; the table is a certificate, so it does not matter who made it.

// placement is where pod id, an index into pods, was put.
type placement map[int]int

// verify is nil if every pod stands once on one of the GPUs and the pods of each GPU can run.
func verify(pods []Pod, on placement, c Config) error {
	if len(on) != len(pods) {
		return fmt.Errorf("%d of %d pods are placed", len(on), len(pods))
	}
	gpus := map[int][]Pod{}
	for id, p := range pods {
		g, ok := on[id]
		if !ok || g < 0 || g >= c.GPUs {
			return fmt.Errorf("pod %d is on GPU %d of %d", id, g, c.GPUs)
		}
		gpus[g] = append(gpus[g], p)
	}
	for g, pods := range gpus {
		if err := verifyGPU(pods, c); err != nil {
			return fmt.Errorf("GPU %d: %w", g, err)
		}
	}
	return nil
}

const window = time.Second

func verifyGPU(pods []Pod, c Config) error {
	memory := share.Bytes(0)
	var items []slot.Item
	for _, p := range pods {
		memory += p.Memory
		items = append(items, p.item())
	}
	if memory > c.Memory {
		return fmt.Errorf("%d bytes of memory", memory)
	}
	table, ok := slot.Solve(items, window, c.Reserve)
	if !ok {
		return fmt.Errorf("no table for %v", items)
	}
	return verifyTable(table, items, c.Reserve)
}

// verifyTable allows a nanosecond a turn for rounding.
func verifyTable(table slot.Table, items []slot.Item, reserve share.PerMille) error {
	got, total := make([]time.Duration, len(items)), time.Duration(0)
	for _, turn := range table.Turns {
		sm := share.PerMille(0)
		for _, k := range slices.Compact(turn.Members) {
			sm += items[k].SM
			got[k] += turn.Duration
		}
		if sm > share.Whole {
			return fmt.Errorf("a turn uses %d per mille of the SMs", sm)
		}
		total += turn.Duration
	}
	turns := time.Duration(len(table.Turns))
	if left := window * time.Duration(share.Whole-reserve) / time.Duration(share.Whole); turns > 1 && total > left+turns {
		return fmt.Errorf("turns take %v of %v", total, left)
	}
	for k, i := range items {
		if i.Quota < share.Whole && got[k]+turns < window*time.Duration(i.Quota)/time.Duration(share.Whole) {
			return fmt.Errorf("item %v gets %v", i, got[k])
		}
	}
	return nil
}

// forPolicy returns what the checker is to hold a policy to. Most rectangles are as wide as the pods are stretched, which covers
// more than the pods themselves ask for.
func forPolicy(policy string, pods []Pod, c Config) ([]Pod, Config) {
	if slices.Contains([]string{"slot", "slot-best-fit", "best-area"}, policy) {
		return pods, c
	}
	wide := slices.Clone(pods)
	for k, p := range pods {
		for w := p.Quota; w <= share.Whole && w*(share.Whole-c.Reserve) < p.Quota*share.Whole; w++ {
			wide[k].Quota = min(w+1, share.Whole)
		}
	}
	c.Reserve = 0
	return wide, c
}

// Negative control: the checker must object to a packer that looks at areas alone, and to wrong bookkeeping.
func TestCheckerObjects(t *testing.T) {
	c := Config{GPUs: 1000, Memory: 100}
	for name, family := range Families() {
		pods := Draw(family, 300, 1)
		areaOnly := &Fleet{config: c, learn: func(Pod) {}, home: map[int]location{}, fresh: newCounted(fitTest{
			worth: Pod.Area, implies: isAtLeast, admits: func([]Pod) bool { return true },
		})}
		on, err := fillAll(areaOnly, pods)
		if err != nil {
			t.Fatal(err)
		}
		if verify(pods, on, c) == nil {
			t.Errorf("%s: packed by area alone, and no objection", name)
		}
	}
	half := Pod{SM: 500, Quota: 1000, Memory: 60}
	two := []Pod{half, half}
	for name, on := range map[string]placement{
		"not placed": {0: 0}, "no such GPU": {0: 0, 1: 1000}, "memory": {0: 0, 1: 0},
	} {
		t.Run(name, func(t *testing.T) {
			if verify(two, on, c) == nil {
				t.Errorf("no objection")
			}
		})
	}
	if err := verify(two, placement{0: 0, 1: 1}, c); err != nil {
		t.Error(err)
	}
}

func fillAll(f *Fleet, pods []Pod) (placement, error) {
	on := placement{}
	for id, p := range pods {
		g, ok := f.Place(id, p)
		if !ok {
			return nil, fmt.Errorf("pod %d finds no place", id)
		}
		on[id] = g
	}
	return on, nil
}
