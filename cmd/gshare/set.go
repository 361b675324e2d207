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
		Short: "Move the SM limit of a program that runs",
		Long: "set lowers the limit of an elastic run, or raises it again, between its request and the limit that it began with.\n" +
			"RUN is the name or the ID that gshare ps shows. The program notices nothing but its speed.",
		Example: "  gshare set trainer --sm-limit 40",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("which run? gshare ps lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("sm-limit") {
				return cli.Usagef("--sm-limit: how many percent?")
			}
			err := agent.New(socket).SetLimit(cmd.Context(), control.LimitRequest{Run: args[0], SMLimit: limit})
			if refused := (*agent.Refused)(nil); errors.As(err, &refused) {
				return errors.New(explain(refused.Refusal))
			}
			return err
		},
	}
	cmd.Flags().Int64Var(&limit, "sm-limit", 0, "SMs in percent of the GPU")
	cmd.Flags().StringVar(&socket, "socket", "", "control socket of the agent")
	return cmd
}
