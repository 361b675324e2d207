package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/shapes"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// GPU is a device with its admitted pods, and the fraction of each window (the period of quotas) that its slot table keeps free for
// switching.
type GPU struct {
	Pods    []shapes.Pod
	Reserve share.PerMille
}

// AdmissionRules returns the names of the rules by which GPUs admit pods: slot tables with a reserve for the switch loss, and FaST-GShare's
// rectangles (mra).
func AdmissionRules() []string { return []string{"slot", "mra"} }

// maxRefusals is the number of consecutive refused pods after which a GPU counts as full.
const maxRefusals = 50

// Fill fills one GPU after another with pods drawn from the family (a distribution of pod sizes). It drops the pods that a GPU refuses.
func Fill(ctx context.Context, admission string, f shapes.Family, gpus int, s Setting, seed uint64) ([]GPU, error) {
	var fleet []GPU
	r := rand.New(rand.NewPCG(seed, 0))
	for range gpus {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		admit, err := newAdmitter(admission, s)
		if err != nil {
			return nil, err
		}
		fleet = append(fleet, fillOne(admit, f, r))
	}
	return fleet, nil
}

func fillOne(admit func(*GPU, shapes.Pod) bool, f shapes.Family, r *rand.Rand) (g GPU) {
	for refused := 0; refused < maxRefusals; refused++ {
		if admit(&g, f(r)) {
			refused = 0
		}
	}
	return g
}

// newAdmitter returns a function that adds a pod to a GPU and reports whether the admission rule allows it.
func newAdmitter(admission string, s Setting) (func(*GPU, shapes.Pod) bool, error) {
	switch admission {
	case "slot":
		return func(g *GPU, p shapes.Pod) bool { return bySlots(g, p, s) }, nil
	case "mra":
		packed, err := shapes.New("mra", shapes.Config{GPUs: 1})
		return func(g *GPU, p shapes.Pod) bool { return byRectangles(g, p, packed) }, err
	}
	return nil, fmt.Errorf("unknown admission %q", admission)
}

func byRectangles(g *GPU, p shapes.Pod, packed *shapes.Fleet) bool {
	_, ok := packed.Place(len(g.Pods), p)
	if ok {
		g.Pods = append(g.Pods, p)
	}
	return ok
}

func bySlots(g *GPU, p shapes.Pod, s Setting) bool {
	pods := append(slices.Clip(g.Pods), p)
	reserve, ok := ReserveFor(itemsOf(pods), s.Window, s.SwitchLoss)
	if ok {
		g.Pods, g.Reserve = pods, reserve
	}
	return ok
}

func itemsOf(pods []shapes.Pod) []slot.Item {
	items := make([]slot.Item, len(pods))
	for k, p := range pods {
		items[k] = slot.Item{SM: p.SM, Quota: p.Quota}
	}
	return items
}

// ReserveFor returns the fraction of the window that a slot table of the shares needs for switching between turns, where each switch loses
// the time loss; it returns false if the shares do not fit into the rest of the window. A larger reserve may lead to a table with more
// turns, so ReserveFor increases the reserve until it covers the turns of the table that results from it.
func ReserveFor(items []slot.Item, window, loss time.Duration) (share.PerMille, bool) {
	reserve := share.PerMille(0)
	for {
		table, ok := slot.Solve(items, window, reserve)
		if !ok || len(table.Turns) < 2 {
			return 0, ok
		}
		whole := time.Duration(share.Whole)
		need := share.PerMille((loss*time.Duration(len(table.Turns))*whole + window - 1) / window)
		if need <= reserve {
			return reserve, true
		}
		reserve = need
	}
}
