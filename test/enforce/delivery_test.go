package enforce_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// filled is a GPU with random shares of 5 % steps, until 30 in a row do not fit.
func filled(r *rand.Rand) (items []slot.Item) {
	for refused := 0; refused < 30 && len(items) < 12; {
		item := slot.Item{SM: share.PerMille(50 * (1 + r.IntN(20))), Quota: share.PerMille(50 * (1 + r.IntN(20)))}
		if _, fits := slot.Solve(append(items, item), window, table.Reserve); fits {
			items, refused = append(items, item), 0
		} else {
			refused++
		}
	}
	return items
}

// kernelMax bounds a kernel on the SMs that its pod has, in us. What a turn overruns by is at most two of them and has to
// come out of the table's reserve.
const kernelMax = 300

// pods gives each share a greedy load of its own kind.
func pods(r *rand.Rand, items []slot.Item) (pods []enforce.Pod) {
	for _, item := range items {
		length := time.Duration(20+r.IntN(kernelMax)) * time.Microsecond * time.Duration(item.SM) / time.Duration(share.Whole)
		load := []string{kernel(length, share.Whole)}
		if r.IntN(4) == 0 {
			load = append(load, "as=graph", "graph=2")
		}
		pods = append(pods, enforce.Pod{Share: part(item.SM, item.Quota), Load: load})
	}
	return pods
}

// short counts the pods of a full GPU that get less than 98 % of what was admitted, while all are busy.
func short(t *testing.T, items []slot.Item, policy token.Config, r *rand.Rand, length time.Duration) (missed int) {
	spans := run(t, enforce.Experiment{Tokens: policy, Length: length, Pods: pods(r, items)})
	for i, s := range spans {
		if err := enforce.Delivered(s, items[i].Quota, 2*window, length); err != nil {
			t.Logf("pod %d, %d SM: %v", i, items[i].SM, err)
			missed++
		}
	}
	return missed
}

// TestDelivery holds that what was admitted is what is delivered (DESIGN 5), on random full GPUs.
func TestDelivery(t *testing.T) {
	gpus, length := uint64(2), 1200*ms
	if *full {
		gpus, length = 100, 2200*ms
	}
	for seed := range gpus {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 8))
			if missed := short(t, filled(r), table, r, length); missed > 0 {
				t.Errorf("%d pods get less than 98 %% of their quota", missed)
			}
		})
	}
}

// TestDeliveryControl gives the same GPUs to the policy as the FaST paper prints it: somebody must go short.
func TestDeliveryControl(t *testing.T) {
	missed := 0
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 8))
		missed += short(t, filled(r), token.Config{Policy: token.HeadOfLine}, r, 1200*ms)
	}
	if missed == 0 {
		t.Error("the greedy policy delivers as well")
	}
}
