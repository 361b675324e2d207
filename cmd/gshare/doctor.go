package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/doctor"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
)

const doctorLong = `Check the prerequisites and the state of gshare in a cluster, and show how to fix what fails.

The checks cover the API server, the admission policies, and the scheduler with its lease and profile. On each node they cover the
kubelet, the container runtime, the node agent, the inventory, the node's capacities, the device IDs, MPS, and the placements of its pods.
If serving is installed, they also cover its kinds, controller and gateways, and functions and replicas that cannot serve.

doctor only reads from the API server, with your permissions. Checks that need other permissions are reported as unknown. The exit code
is 1 if a check failed.`

var _ = inCluster.add(doctorCommand)

func doctorCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	var all bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the installation of gshare in a cluster", Long: doctorLong,
		Example: "  gshare doctor\n  gshare doctor --all\n  gshare doctor -o json", Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			found := doctor.Examine(cmd.Context(), c.Client, c.Objects, time.Now())
			err = format.Write(cmd.OutOrStdout(), found, func(w io.Writer) error { return writeFindings(w, found, all) })
			if err == nil && doctor.Broken(found) {
				err = fmt.Errorf("%d of %d checks failed", count(found, doctor.Failed), len(found))
			}
			return err
		},
	}
	flags.AddTo(cmd)
	format.AddTo(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also list the checks that passed")
	return cmd
}

func count(found []doctor.Finding, status doctor.Status) (n int) {
	for _, f := range found {
		if f.Status == status {
			n++
		}
	}
	return n
}

// writeFindings writes the findings that are not OK, or all of them if all is set, followed by the number of findings of each status.
func writeFindings(w io.Writer, found []doctor.Finding, all bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STATUS\tNODE\tCOMPONENT\tCHECK\tMESSAGE")
	for _, f := range found {
		if all || f.Status != doctor.OK {
			output.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.Status, f.Node, f.Component, f.Check, strings.TrimSpace(f.Message))
			if f.Fix != "" {
				output.Fprintf(t, "\t\t\t\tfix: %s\n", f.Fix)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := output.Fprintf(w, "%d ok, %d warnings, %d unknown, %d failed\n", count(found, doctor.OK), count(found, doctor.Warning),
		count(found, doctor.Unknown), count(found, doctor.Failed))
	return err
}
