//go:build linux

package main

import (
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

var _ = onMachine.add(psCommand)

func psCommand() *cobra.Command {
	var socket string
	var format output.Format
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the shares on this machine",
		Long: "List the programs that gshare run started on this machine, with their shares, the SMs that they may use now, and the time and\n" +
			"memory that they used in the last second. -o json and -o yaml also include how each share is enforced, and why processes\n" +
			"are refused.",
		Example: "  gshare ps\n  gshare ps -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeStatus(cmd, &format, socket)
		},
	}
	format.AddTo(cmd)
	addSocket(cmd.Flags(), &socket)
	return cmd
}

// writeStatus writes what the node agent of this machine reports: its devices and the programs that run on them.
func writeStatus(cmd *cobra.Command, format *output.Format, socket string) error {
	status, err := agent.New(socket).Status(cmd.Context())
	if err != nil {
		return err
	}
	return format.Write(cmd.OutOrStdout(), status, func(w io.Writer) error { return writeRuns(w, status) })
}

// writeRuns writes a table of the programs started by gshare run, with a row for each of their vGPUs.
func writeRuns(w io.Writer, status control.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tNAME\tUSER\tPID\tDEVICE\tSM\tNOW\tQUOTA\tUSED\tMEM\tUSED\tPROCS\tSTATE\tIDENTITY")
	for _, r := range status.Runs {
		identity, _, _ := strings.Cut(r.Enforcement.Identity, ":")
		for _, v := range r.VGPUs {
			output.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.ID, r.Name, userName(r.UID), r.PID,
				shortDevice(v.Device), formatRange(v.SM, v.SMLimit), v.SMNow.Percent(), formatRange(v.Quota, v.QuotaLimit), v.UsedTime.Percent(), memoryText(v.Memory),
				memoryText(v.UsedMemory), len(v.Processes), stateOf(v, &r), identity)
		}
	}
	return t.Flush()
}

// stateOf returns the state of the processes that use a vGPU of a run, as text, with what of them does not follow the agent.
func stateOf(v control.VGPU, r *control.Run) string {
	state := "starting"
	switch {
	case r.Refused != "" && len(v.Processes) == 0:
		state = "refused"
	case v.Running:
		state = "running"
	case v.Waiting > 0:
		state = "waiting"
	case len(v.Processes) > 0:
		state = "idle"
	}
	if r.SelfPaced > 0 && state != "refused" {
		state += fmt.Sprintf(", %d self-paced", r.SelfPaced)
	}
	if r.Refused != "" && state != "refused" {
		state += ", some refused"
	}
	if r.Unhooked != "" {
		state += ", unhooked: " + r.Unhooked
	}
	return state
}

// userName returns the login name of a user, or the UID as text if the user has none.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
