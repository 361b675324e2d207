// Command gshare is what people type: simulations of packing, sharing and serving, and questions to a cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := root()
	as(cmd, os.Args[0], os.Args[1:])
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gshare:", err)
		os.Exit(exitCode(err))
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gshare",
		Short: "Share GPUs, and see what sharing does",
		Long: "gshare shares the GPUs of this machine (run, set, ps, top), looks at a cluster that gshare shares (explain, map, tree, top,\n" +
			"doctor, version), and says what sharing would do (whatif, simulate, plan). Linked to as kubectl-gshare it is kubectl gshare.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(simulateCommand(), planCommand(), whatifCommand(), runCommand(), setCommand(), psCommand(), topCommand(),
		explainCommand(), mapCommand(), treeCommand(), doctorCommand(), versionCommand())
	return cmd
}

// usageError is a mistake of the caller's, in a flag or in a file: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exactly and atMost say how many arguments a command takes, and what they are.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%d arguments given, it takes %s", len(args), what)
		}
		return nil
	}
}

func atMost(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("%d arguments given, it takes at most %s", len(args), what)
		}
		return nil
	}
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func exitCode(err error) int {
	var usage usageError
	var exit exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		return 2
	case errors.Is(err, context.Canceled):
		return 130 // as the shell reports an interrupt
	}
	return 1
}
