package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/verdict"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	advice "github.com/gshare-dev/gshare/vgpu/explain"
)

const explainLong = `Explain where a pod with GPU shares is placed, or why it is pending.

For a placed pod, explain shows each of its slices and the other shares on it. For a pending pod, it shows why the pod does not fit on
each node and slice, and the smallest changes that would make it fit: less memory, fewer SMs, less time, another GPU model, class or
kind of slice, or the end of another pod. It applies the scheduler's rules to the current nodes and pods, and changes nothing.

For a pod with resource claims, explain shows its devices and the other pods on them. While a claim is not allocated, it shows what each
device has left.

explain needs permission to list nodes and pods and, for pods with resource claims, resourceclaims and resourceslices. With permission
to list ConfigMaps in gshare-system, it uses the scheduler's configuration, otherwise the default one. It does not evaluate conditions
that depend on other pods (pod affinity, topology spread, volumes, ports), but shows the scheduler's last message about them.`

var _ = inCluster.add(explainCommand)

func explainCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	var namespace string
	cmd := &cobra.Command{
		Use: "explain POD", Short: "Explain where a pod is placed, or why it is pending", Long: explainLong,
		Example: "  gshare explain train-0 -n ml\n  gshare explain ml/train-0 -o json",
		Args:    cli.Exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			report, snapshot, err := explainPod(cmd.Context(), c, parsePodName(args[0], effectiveNamespace(namespace, c)))
			if err != nil {
				return err
			}
			return format.Write(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeReport(w, report, snapshot) })
		},
	}
	cmd.ValidArgsFunction = completeFromCluster(&flags, podsWithShares(&namespace))
	flags.AddTo(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pod (default: the namespace of the context)")
	format.AddTo(cmd)
	return cmd
}

// parsePodName parses an argument of the form POD or NAMESPACE/POD.
func parsePodName(arg, namespace string) types.NamespacedName {
	if before, after, ok := strings.Cut(arg, "/"); ok {
		namespace, arg = before, after
	}
	return types.NamespacedName{Namespace: namespace, Name: arg}
}

// explainPod reads the cluster and returns the report on the pod, with the snapshot of nodes and pods that the report is based on.
func explainPod(ctx context.Context, c *cluster.Connection, name types.NamespacedName) (*verdict.Report, *cluster.Snapshot, error) {
	snapshot, err := cluster.Read(ctx, c.Client)
	if err != nil {
		return nil, nil, err
	}
	pod, ok := snapshot.Pod(name)
	if !ok {
		return nil, nil, fmt.Errorf("pod %s not found; set its namespace with --namespace", name)
	}
	if !verdict.ByClaims(pod) {
		return verdict.Explain(snapshot, pod), snapshot, nil
	}
	claims, err := cluster.ReadClaims(ctx, c.Client)
	if err != nil {
		return nil, nil, err
	}
	return verdict.ExplainClaims(snapshot, pod, claims), snapshot, nil
}

// writeReport writes the summary of an explained pod, then the changes that would make the pod fit, then the slices and nodes in detail.
func writeReport(w io.Writer, r *verdict.Report, s *cluster.Snapshot) error {
	output.Fprintf(w, "%s  %s: %s\n", r.Pod, r.Reason, r.Summary)
	if r.Fix != "" {
		output.Fprintf(w, "fix:  %s\n", r.Fix)
	}
	for _, line := range r.Asks {
		output.Fprintf(w, "requests: %s\n", line)
	}
	for _, line := range r.Said {
		output.Fprintf(w, "status: %s\n", line)
	}
	writeChanges(w, "The pod would fit with one of these changes:", r.Changes)
	writePlaces(w, r.Places, s)
	if err := writeNodes(w, r); err != nil {
		return err
	}
	for _, note := range r.Notes {
		output.Fprintln(w, "*", note)
	}
	return nil
}

func writeChanges(w io.Writer, title string, changes []advice.Change) {
	if len(changes) > 0 {
		output.Fprintf(w, "\n%s\n", title)
	}
	for _, c := range changes {
		output.Fprintf(w, "  %s  (on node %s)\n", changeText(c), c.Node)
	}
}

// changeText returns a proposed change of a pod's request as text, such as "gshare/mem: 4096 instead of 8192".
func changeText(c advice.Change) string {
	var edits []string
	for _, e := range c.Edits {
		text := e.Field + ": " + e.To
		if e.To == "" {
			text = "no " + e.Field
		}
		if e.From != "" {
			text += " instead of " + e.From
		}
		if e.Container != "" {
			text += " in container " + e.Container
		}
		edits = append(edits, text)
	}
	return strings.Join(edits, ", and ")
}

// writePlaces writes the slice of every vGPU of a placed pod, with a drawing of each slice.
func writePlaces(w io.Writer, places []verdict.Place, s *cluster.Snapshot) {
	drawn := map[string]bool{}
	for _, p := range places {
		output.Fprintf(w, "\n%s vGPU %d: slice %s of %s (%s), %s: %s\n", p.Container, p.VGPU, p.Slice, p.Node, p.Model, p.Class, p.Share)
		if p.Weights != "" {
			output.Fprintf(w, "  and %s\n", p.Weights)
		}
		if p.Key != "" {
			output.Fprintf(w, "  and anti-affinity %s: no other share of the namespace on this GPU has it\n", p.Key)
		}
		if p.Missing {
			fmt.Fprintln(w, "  the node's inventory no longer lists this slice")
		}
		for _, n := range p.Beside {
			output.Fprintf(w, "  beside %s: %s\n", n.Name, n.Share)
		}
		if !drawn[p.Slice] {
			drawn[p.Slice] = true
			for _, d := range slicesOn(s, p.Node) {
				if d.ID == p.Slice {
					fmt.Fprintln(w)
					gpumap.Detail(w, d.Slice, drawOptions(w))
				}
			}
		}
	}
}

// maxNodes is the largest number of nodes in the table of gshare explain; JSON and YAML output have all.
const maxNodes = 10

func writeNodes(w io.Writer, r *verdict.Report) error {
	if len(r.Nodes) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tVERDICT\tDETAIL")
	for _, n := range r.Nodes[:min(len(r.Nodes), maxNodes)] {
		writeNode(t, n)
	}
	if more := len(r.Nodes) - maxNodes; more > 0 {
		output.Fprintf(t, "… %d more\tsee -o json\t\n", more)
	}
	return t.Flush()
}

func writeNode(t io.Writer, n verdict.Node) {
	if n.Fits {
		output.Fprintf(t, "%s\tfits\t\n", n.Name)
	}
	name := n.Name
	for _, o := range n.Obstacles {
		output.Fprintf(t, "%s\t%s\t%s\n", name, o.Reason, o.Detail)
		if name = ""; o.Fix != "" {
			output.Fprintf(t, "\t\tfix: %s\n", o.Fix)
		}
	}
	for _, s := range n.Slices {
		output.Fprintf(t, "\t  %s %s\t%s%s\n", shortDevice(s.ID), s.Model, strings.Join(s.Says, "; ")+closedFor(s.Closed), heldBy(s.Holders, s.Shared))
	}
	for _, c := range n.Changes {
		output.Fprintf(t, "\t  would fit with\t%s\n", changeText(c))
	}
	if len(n.Leave) > 0 {
		output.Fprintf(t, "\t  would fit without one of\t%s\n", strings.Join(n.Leave, ", "))
	}
}

func closedFor(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func heldBy(holders []string, shared string) string {
	if len(holders) == 0 {
		return ""
	}
	text := "; held by " + strings.Join(holders, ", ")
	if shared != "" {
		text += "; " + shared
	}
	return text
}
