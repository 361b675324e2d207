package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/function"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

const functionLong = `Show the functions of a cluster, or one function with its replicas and why it was scaled.

The table describes the requests of the last seconds: the 99th percentile of their latency (P99), the part answered within the objective
(HIT), and the requests per second (RPS). PODS counts the pods with their whole share, those in reserve, and those that are parked.

With NAME, gshare function shows for each replica where it is, which share it has, and what it waits for. It also shows the events of
the last hour: what the autoscaler decided and why, and what could not be done.`

// functionFlags are the flags of the commands about functions.
type functionFlags struct {
	cluster   cluster.Flags
	format    output.Format
	namespace string
}

func (f *functionFlags) addTo(cmd *cobra.Command) {
	f.cluster.AddTo(cmd)
	f.format.AddTo(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "namespace of the function (default: the namespace of the context)")
	cmd.ValidArgsFunction = completeFromCluster(&f.cluster, func(ctx context.Context, c *cluster.Connection) (names []string) {
		functions, err := function.List(ctx, c, effectiveNamespace(f.namespace, c))
		if err != nil {
			return nil
		}
		for _, one := range functions {
			names = append(names, one.Name)
		}
		return names
	})
}

var _ = inServing.add(functionCommand)

func functionCommand() *cobra.Command {
	var flags functionFlags
	var everywhere bool
	cmd := &cobra.Command{
		Use: "function [NAME]", Aliases: []string{"functions"}, Short: "Show the functions of a cluster and their replicas", Long: functionLong,
		Example: "  gshare function\n  gshare function -A\n  gshare function resnet50 -n ml",
		Args:    cli.AtMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.cluster.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			if len(args) == 1 && everywhere {
				return cli.Usage(fmt.Errorf("-A shows all functions: leave out %s", args[0]))
			}
			if len(args) == 1 {
				return describeFunction(cmd, &flags, c, args[0])
			}
			namespace := effectiveNamespace(flags.namespace, c)
			if everywhere {
				namespace = ""
			}
			all, err := function.List(cmd.Context(), c, namespace)
			if err != nil {
				return err
			}
			return flags.format.Write(cmd.OutOrStdout(), all, func(w io.Writer) error { return writeFunctions(w, all, everywhere, time.Now()) })
		},
	}
	flags.addTo(cmd)
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "show the functions of all namespaces")
	return cmd
}

// writeFunctions writes a table of functions with the columns of kubectl get.
func writeFunctions(w io.Writer, all []*api.GPUFunction, everywhere bool, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no functions")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if everywhere {
		fmt.Fprint(t, "NAMESPACE\t")
	}
	fmt.Fprintln(t, "NAME\tSLO\tP99\tHIT\tRPS\tPODS\tSHARE\tREADY\tREASON\tAGE")
	for _, f := range all {
		if everywhere {
			output.Fprintf(t, "%s\t", f.Namespace)
		}
		ready, reason := readiness(f)
		o := f.Status.Observed
		output.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, f.Spec.SLO.Latency, orDash(string(o.P99)), orDash(o.Hit), orDash(o.RequestsPerSecond),
			orDash(f.Status.Pods), orDash(f.Status.Share), ready, reason, age(now.Sub(f.CreationTimestamp.Time)))
	}
	return t.Flush()
}

// readiness returns the columns READY and REASON of a function.
func readiness(f *api.GPUFunction) (ready, reason string) {
	c := meta.FindStatusCondition(f.Status.Conditions, api.ConditionReady)
	if c == nil {
		return "Unknown", "-"
	}
	return string(c.Status), c.Reason
}

func orDash(text string) string { return cmp.Or(text, "-") }

// age returns a duration as kubectl prints it.
func age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// described is the JSON and YAML form of a function: its object, its replicas, and what the autoscaler decided about it.
type described struct {
	Function  *api.GPUFunction    `json:"function"`
	Replicas  []function.Replica  `json:"replicas"`
	Decisions []function.Decision `json:"decisions"`
}

func describeFunction(cmd *cobra.Command, flags *functionFlags, c *cluster.Connection, name string) error {
	id := parsePodName(name, effectiveNamespace(flags.namespace, c))
	f, err := function.Get(cmd.Context(), c, id.Namespace, id.Name)
	if err != nil {
		return err
	}
	facts, err := function.Read(cmd.Context(), c, f, time.Now())
	if err != nil {
		return err
	}
	return flags.format.Write(cmd.OutOrStdout(), described{f, facts.Replicas, facts.Decisions}, func(w io.Writer) error {
		return writeDescription(w, f, facts)
	})
}

// objectiveText returns a latency objective as text.
func objectiveText(s api.SLO) string {
	if s.TimePerToken == "" {
		return string(s.Latency)
	}
	return fmt.Sprintf("%s, then %s per token", s.Latency, s.TimePerToken)
}

func writeDescription(w io.Writer, f *api.GPUFunction, facts *function.Facts) error {
	ready, reason := readiness(f)
	o := f.Status.Observed
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	output.Fprintf(t, "FUNCTION\t%s/%s\n", f.Namespace, f.Name)
	output.Fprintf(t, "READY\t%s\n", cmp.Or(joined(ready, reason, facts.Message), "-"))
	if facts.BackOff != "" {
		output.Fprintf(t, "BACKING OFF\t%s\n", facts.BackOff)
	}
	output.Fprintf(t, "SLO\t%s: p99 %s, %s in time, %s requests/s\n", objectiveText(f.Spec.SLO), orDash(string(o.P99)), orDash(o.Hit), orDash(o.RequestsPerSecond))
	output.Fprintf(t, "SHARE\t%s\n", orDash(f.Status.Share))
	output.Fprintf(t, "REPLICAS\t%s (hot+shared+warm), %d to %d, %s\n", orDash(f.Status.Pods), facts.MinReplicas, limitOf(facts), rateText(facts))
	if text := hostText(&f.Status); text != "" {
		output.Fprintf(t, "SERVED BY\t%s\n", text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := writeReplicas(w, facts.Replicas); err != nil {
		return err
	}
	return writeDecisions(w, facts.Decisions)
}

// hostText returns the name of the function whose replicas serve this one under an InferencePlan, and any change under way. It is empty if the
// function's own replicas serve it and will continue to.
func hostText(s *api.GPUFunctionStatus) string {
	switch {
	case s.ServedBy == "" && s.Host == "":
		return ""
	case s.ServedBy == "":
		return s.Host + ", until it has its own replicas again"
	case s.ServedBy != s.Host:
		return "itself, until " + s.ServedBy + " has the replicas for both"
	}
	return s.Host
}

// limitOf returns the greatest number of replicas that a function gets.
func limitOf(f *function.Facts) int {
	if f.Unprofiled {
		return max(1, f.MinReplicas)
	}
	return f.MaxReplicas
}

func rateText(f *function.Facts) string {
	if f.Unprofiled {
		return "not scaled: share or requestsPerSecond is not set"
	}
	if f.Least > 0 {
		return fmt.Sprintf("each for %.4g to %.4g requests/s", f.Least, f.RequestsPerSecond)
	}
	return fmt.Sprintf("each for %.4g requests/s", f.RequestsPerSecond)
}

func joined(ready, reason, message string) string {
	text := ready + ", " + reason
	if message != "" {
		text += ": " + message
	}
	return text
}

func writeReplicas(w io.Writer, all []function.Replica) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "\nno replicas")
		return err
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POD\tPHASE\tRESIDENCY\tNODE\tSLICE\tSHARE\tAGE\tWAITS FOR")
	for _, r := range all {
		output.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Pod, r.Phase, r.Residency, orDash(r.Node), orDash(shortDevice(r.Slice)), orDash(r.Share), age(r.Age), orDash(r.Waits))
	}
	return t.Flush()
}

// maxDecisions is the number of decisions in the table; JSON and YAML output have all.
const maxDecisions = 10

func writeDecisions(w io.Writer, all []function.Decision) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "\nno events in the last hour")
		return err
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "AGO\tEVENT")
	for _, d := range all[:min(len(all), maxDecisions)] {
		output.Fprintf(t, "%s\t%s%s\n", age(d.Ago), d.Text, times(d.Count))
	}
	if more := len(all) - maxDecisions; more > 0 {
		output.Fprintf(t, "…\t%d more: see -o json\n", more)
	}
	return t.Flush()
}

func times(n int) string {
	if n > 1 {
		return fmt.Sprintf(" (%d times)", n)
	}
	return ""
}
