//go:build linux

package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

var _ = onMachine.add(stopCommand)

func stopCommand() *cobra.Command {
	var socket string
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "stop RUN",
		Short: "End a program that runs on a share of this machine",
		Long: "End all processes of a run: with SIGTERM and, if some are left after the grace period, with SIGKILL. stop returns once they have\n" +
			"ended and their share is free. RUN is a name or an ID that gshare ps lists. Only root and the user of the run may stop it.",
		Example: "  gshare stop trainer\n  gshare stop server --grace 1m",
		Args:    oneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace < 0 || grace > time.Hour {
				return cli.Usagef("--grace %v: want 0s to 1h", grace)
			}
			seconds := int64((grace + time.Second - 1) / time.Second)
			return refusalError(agent.New(socket).Stop(cmd.Context(), control.StopRequest{Run: args[0], GraceSeconds: seconds}))
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 10*time.Second, "time after SIGTERM until SIGKILL, in whole seconds")
	addSocket(cmd.Flags(), &socket)
	return cmd
}

// oneRun is a cobra.PositionalArgs that wants the name or ID of a run.
func oneRun(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("requires the name or ID of one run (see gshare ps)")
	}
	return nil
}

// refusalCodes are the exit codes for refusals of the agent. Of kinds that an agent of another version sends, it is that of a failure.
var refusalCodes = map[control.RefusalKind]int{
	control.Invalid: 2, control.Busy: 1, control.NotFound: 1, control.Forbidden: 1, control.Failed: 1,
}

// refusalError returns the agent's refusal as an error in terms of the command line, with its exit code, and other errors as they are.
func refusalError(err error) error {
	refusal, ok := errors.AsType[*control.Refusal](err)
	if !ok {
		return err
	}
	code, ok := refusalCodes[refusal.Kind]
	if !ok {
		code = 1
	}
	return cli.WithExitCode(code, errors.New(refusalText(refusal)))
}

// addSocket adds the flag of the agent's control socket.
func addSocket(f *pflag.FlagSet, socket *string) {
	f.StringVar(socket, "socket", "",
		"control socket of the agent (default: $"+agent.SocketVariable+", else that of your own agent, else the machine's)")
}
