package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

func setCommand() *cobra.Command {
	var socket string
	var limit int64
	cmd := &cobra.Command{
		Use:   "set RUN --sm-limit PERCENT",
		Short: "Change the SM limit of a running program",
		Long: "Change the SM limit of an elastic run, between its SM request and the limit that it was started with. The program keeps running.\n" +
			"RUN is a name or an ID that gshare ps lists.",
		Example: "  gshare set trainer --sm-limit 40",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("requires the name or ID of one run (see gshare ps)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("sm-limit") {
				return cli.Usagef("--sm-limit is required")
			}
			err := agent.New(socket).SetLimit(cmd.Context(), control.LimitRequest{Run: args[0], SMLimit: limit})
			if refused := (*agent.Refused)(nil); errors.As(err, &refused) {
				return errors.New(refusalText(refused.Refusal))
			}
			return err
		},
	}
	cmd.Flags().Int64Var(&limit, "sm-limit", 0, "maximum SMs in percent of the GPU")
	cmd.Flags().StringVar(&socket, "socket", "", "control socket of the agent")
	return cmd
}
