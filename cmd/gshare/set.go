//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

var _ = onMachine.add(setCommand)

func setCommand() *cobra.Command {
	var socket string
	var limit, quota int64
	cmd := &cobra.Command{
		Use:   "set RUN --sm-limit PERCENT | set RUN --quota PERCENT",
		Short: "Change the SM limit or the quota of a running program",
		Long: "Change the SM limit of an elastic run, or the quota of a run of class mps, while the program keeps running. The SM limit can be set\n" +
			"between the SM request of the run and the limit that it started with; the quota, up to the quota that it started with.\n" +
			"RUN is a name or an ID that gshare ps lists.",
		Example: "  gshare set trainer --sm-limit 40\n  gshare set server --quota 25",
		Args:    oneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			request := control.LimitRequest{Run: args[0], SMLimit: ifSet(cmd, "sm-limit", &limit), Quota: ifSet(cmd, "quota", &quota)}
			switch {
			case request.SMLimit == nil && request.Quota == nil:
				return cli.Usagef("one of --sm-limit and --quota is required")
			case request.SMLimit != nil && request.Quota != nil:
				return cli.Usagef("--sm-limit and --quota exclude each other: they are of different isolation classes")
			}
			if err := checkPercent(cmd, "sm-limit", "quota"); err != nil {
				return cli.Usage(err)
			}
			return refusalError(agent.New(socket).SetLimit(cmd.Context(), request))
		},
	}
	cmd.Flags().Int64Var(&limit, "sm-limit", 0, "maximum SMs in percent of the GPU")
	cmd.Flags().Int64Var(&quota, "quota", 0, "guaranteed and maximum time in percent of each window")
	addSocket(cmd.Flags(), &socket)
	return cmd
}
