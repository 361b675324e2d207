package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/rebalanceview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
)

// rebalancing is the output of gshare whatif --rebalance.
type rebalancing struct {
	Moves   []movedPod    `json:"moves"` // that free GPUs, in the order in which to make them
	Freed   []string      `json:"freed"` // GPUs, as node/UUID
	Waiting []admittedPod `json:"waiting"`
	Stay    []string      `json:"stay"` // how many pods may not be moved, and why
}

// movedPod is a pod with the GPUs from which and to which it would be moved, as node/UUID.
type movedPod struct {
	Pod  string   `json:"pod"`
	From []string `json:"from"`
	To   []string `json:"to"`
}

// admittedPod is a waiting pod, and the moves of other pods after which it would fit on a node. Each waiting pod is considered on its own: the
// moves for one do not assume those for another.
type admittedPod struct {
	Pod   string     `json:"pod"`
	Node  string     `json:"node,omitempty"` // empty if no moves make it fit
	Moves []movedPod `json:"moves"`
}

// showMoves reads the cluster and writes what could be moved.
func (w *whatifRun) showMoves(ctx context.Context, client kubernetes.Interface, out io.Writer) error {
	v, err := w.readView(ctx, client)
	if err != nil {
		return err
	}
	limits := rebalance.Limits{Moves: w.moves}
	plan := rebalance.Free(&v.Cluster, limits)
	r := rebalancing{Moves: movesOf(v, plan), Freed: []string{}, Waiting: []admittedPod{}, Stay: []string{}}
	for _, d := range plan.Freed {
		r.Freed = append(r.Freed, v.Nodes[d.Node].Name+"/"+d.ID)
	}
	for _, pod := range v.Waiting {
		a := admittedPod{Pod: pod.Namespace + "/" + pod.Name, Moves: []movedPod{}}
		if plan, ok := v.Admit(pod, limits); ok {
			a.Node, a.Moves = v.Nodes[plan.Node].Name, movesOf(v, plan)
		}
		r.Waiting = append(r.Waiting, a)
	}
	for _, reason := range slices.Sorted(maps.Keys(v.Fixed)) {
		r.Stay = append(r.Stay, fmt.Sprintf("%d: %s", v.Fixed[reason], reason))
	}
	return w.format.Write(out, r, r.writeTable)
}

func (w *whatifRun) readView(ctx context.Context, client kubernetes.Interface) (*rebalanceview.View, error) {
	o := rebalanceview.Objects{Scheduler: kube.SchedulerName}
	if !w.agreed {
		wanted := w.options.Namespaces
		o.Willing = func(namespace string) bool { return len(wanted) == 0 || slices.Contains(wanted, namespace) }
	}
	var err error
	if o.Nodes, err = cluster.Nodes(ctx, client); err != nil {
		return nil, err
	}
	if o.Pods, err = cluster.Pods(ctx, client); err != nil {
		return nil, err
	}
	if o.Namespaces, err = cluster.Namespaces(ctx, client); err != nil {
		return nil, err
	}
	o.Budgets, err = cluster.Budgets(ctx, client)
	return rebalanceview.New(o), err
}

func movesOf(v *rebalanceview.View, plan rebalance.Plan) []movedPod {
	moves := []movedPod{}
	for _, m := range plan.Moves {
		p := &v.Pods[m.Pod]
		moves = append(moves, movedPod{Pod: p.Name, From: devicesOf(v.Nodes[m.From], p.Plan), To: devicesOf(v.Nodes[m.To], m.Plan)})
	}
	return moves
}

// devicesOf returns the GPUs of a plan, as node/UUID.
func devicesOf(n *packing.Node, plan packing.Plan) (list []string) {
	for _, picks := range plan {
		for _, pick := range picks {
			list = append(list, n.Name+"/"+n.Slices[pick.Slice].Device)
		}
	}
	return list
}

func (r rebalancing) writeTable(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(r.Moves) > 0 {
		fmt.Fprintln(t, "POD\tFROM\tTO")
	}
	writeMoves(t, r.Moves)
	if err := t.Flush(); err != nil {
		return err
	}
	output.Fprintf(out, "%d moves free %d GPUs\n", len(r.Moves), len(r.Freed))
	for _, d := range r.Freed {
		output.Fprintln(out, "  "+d)
	}
	for _, a := range r.Waiting {
		switch {
		case a.Node == "":
			output.Fprintf(out, "%s waits, and no moves let it in\n", a.Pod)
		default:
			output.Fprintf(out, "%s waits, and fits on node %s after %d moves\n", a.Pod, a.Node, len(a.Moves))
			writeMoves(t, a.Moves)
			if err := t.Flush(); err != nil {
				return err
			}
		}
	}
	for _, text := range r.Stay {
		output.Fprintln(out, "* pods that stay,", text)
	}
	return nil
}

func writeMoves(t io.Writer, moves []movedPod) {
	for _, m := range moves {
		output.Fprintf(t, "%s\t%s\t%s\n", m.Pod, strings.Join(m.From, ","), strings.Join(m.To, ","))
	}
}
