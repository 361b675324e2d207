package main

import (
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/function"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
)

const sloLong = `Explain why requests to a function are late, why it was scaled, and what would help.

slo reads the function's status, its pods and its events of the last hour, and watches the counters of the gateways for some seconds.
Watching them needs permission to create pods/portforward in gshare-system; without it, slo explains what the other sources show. It
changes nothing.`

// sloReport is what gshare slo shows of a function.
type sloReport struct {
	Function  string              `json:"function"`
	SLO       string              `json:"slo"`
	P99       string              `json:"p99,omitempty"`
	Hit       string              `json:"hit,omitempty"`
	Findings  []function.Finding  `json:"findings"`
	Decisions []function.Decision `json:"decisions"` // of the autoscaler, the latest first
	Notes     []string            `json:"notes,omitempty"`
}

var _ = inServing.add(sloCommand)

func sloCommand() *cobra.Command {
	var flags functionFlags
	during := 10 * time.Second
	cmd := &cobra.Command{
		Use: "slo NAME", Short: "Explain why requests to a function are late, and what would help", Long: sloLong,
		Example: "  gshare slo resnet50\n  gshare slo resnet50 -n ml --during 1m",
		Args:    cli.Exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if during <= 0 {
				return cli.Usagef("--during: must be positive, got %v", during)
			}
			c, err := flags.cluster.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			id := parsePodName(args[0], effectiveNamespace(flags.namespace, c))
			var notes []string
			if _, err := function.Get(cmd.Context(), c, id.Namespace, id.Name); err != nil {
				return err
			}
			traffic, err := function.Watch(cmd.Context(), c, id.Namespace, id.Name, during)
			if err != nil {
				notes = append(notes, "what the gateways count is not known: "+err.Error())
			}
			f, err := function.Get(cmd.Context(), c, id.Namespace, id.Name) // read again, so that the status is as recent as the counters
			if err != nil {
				return err
			}
			facts, err := function.Read(cmd.Context(), c, f, time.Now())
			if err != nil {
				return err
			}
			facts.Traffic = traffic
			report := sloReport{
				Function: f.Namespace + "/" + f.Name, SLO: string(f.Spec.SLO.Latency), P99: string(f.Status.Observed.P99), Hit: f.Status.Observed.Hit,
				Findings: function.Diagnose(facts), Notes: notes, Decisions: facts.Scalings(),
			}
			return flags.format.Write(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeSLO(w, &report) })
		},
	}
	flags.addTo(cmd)
	cmd.Flags().DurationVar(&during, "during", during, "how long to watch the counters of the gateways")
	return cmd
}

// maxScalings is the number of decisions that are shown.
const maxScalings = 3

func writeSLO(w io.Writer, r *sloReport) error {
	output.Fprintf(w, "%s  objective %s: p99 %s, %s in time\n\n", r.Function, r.SLO, orDash(r.P99), orDash(r.Hit))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		output.Fprintf(t, "%s\t%s\n", f.Kind, f.Detail)
		if f.Help != "" {
			output.Fprintf(t, "\thelp: %s\n", f.Help)
		}
	}
	for at, d := range r.Decisions[:min(len(r.Decisions), maxScalings)] {
		title := ""
		if at == 0 {
			title = "Scaled"
		}
		output.Fprintf(t, "%s\t%s ago: %s%s\n", title, age(d.Ago), d.Text, times(d.Count))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, note := range r.Notes {
		output.Fprintln(w, "*", note)
	}
	return nil
}
