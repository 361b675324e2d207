// Package cli holds what the programs of gshare have in common: exit codes, usage errors, and progress on a terminal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Root prepares a program's top command: no usage text on errors, and a bad flag is a usage error. It returns the command.
func Root(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	return cmd
}

// Main runs a program's top command until it returns or a signal interrupts it, prints its error on standard error, and ends the process.
func Main(cmd *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		os.Exit(ExitCode(err))
	}
}

// usageError is a mistake in a flag, an argument or a file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as the caller's mistake, in a flag, an argument or a file: exit code 2.
func Usage(err error) error { return usageError{err} }

// Usagef returns a formatted usage error.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// WithExitCode marks an error with the exit code that the process ends with.
func WithExitCode(code int, err error) error { return exitError{err, code} }

// ExitCode returns the exit code for an error: the one it is marked with, 2 for a usage error, 130 for an interrupt (as shells
// report it), and otherwise 1.
func ExitCode(err error) int {
	var usage usageError
	var exit exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		return 2
	case errors.Is(err, context.Canceled):
		return 130
	}
	return 1
}

// NoArgs refuses arguments with a usage error.
func NoArgs(cmd *cobra.Command, args []string) error { return usageArgs(cobra.NoArgs)(cmd, args) }

// Exactly returns a check that refuses any other number of arguments with a usage error.
func Exactly(n int) cobra.PositionalArgs { return usageArgs(cobra.ExactArgs(n)) }

// AtMost returns a check that refuses more than n arguments with a usage error.
func AtMost(n int) cobra.PositionalArgs { return usageArgs(cobra.MaximumNArgs(n)) }

// usageArgs marks the error of a check of arguments as a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Usagef("%w\nUsage: %s", err, cmd.UseLine())
		}
		return nil
	}
}
