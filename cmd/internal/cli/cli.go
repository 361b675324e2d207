// Package cli holds what the programs of gshare have in common: exit codes, usage errors, and progress on a terminal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/internal/output"
)

// Root configures a program's root command so that errors print no usage text and invalid flags are usage errors, and returns it.
func Root(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(flagError(err)) })
	return cmd
}

// flagError returns an error of the parser of flags in the words of who typed them. It keeps the reasons that flags of gshare's own types give.
func flagError(err error) error {
	invalid := (*pflag.InvalidValueError)(nil)
	if !errors.As(err, &invalid) {
		return err
	}
	flag, want := invalid.GetFlag(), ""
	switch kind := flag.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s: %.64q is out of range", flag.Name, invalid.GetValue())
	case kind == "bool":
		want = "true or false"
	case kind == "duration":
		want = "a duration with a unit, such as 500ms, 30s or 1h30m"
	case strings.HasSuffix(kind, "Slice"):
		want = "a list such as 1,2"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "count"):
		want = "a whole number"
	case strings.HasPrefix(kind, "uint"):
		want = "a whole number from 0 on"
	case strings.HasPrefix(kind, "float"):
		want = "a number"
	default:
		return fmt.Errorf("--%s: %w", flag.Name, errors.Unwrap(invalid))
	}
	return fmt.Errorf("--%s: %.64q is not %s", flag.Name, invalid.GetValue(), want)
}

// UntilSignal returns a context that ends at the next signal that asks a program to end: SIGINT, SIGTERM, or SIGHUP, which a program gets when its
// terminal or the connection to it closes. A program that was started with SIGHUP ignored, as by nohup, goes on at SIGHUP.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, signals...)
}

// Main runs a program's root command with a context that UntilSignal ends, prints the error on standard error, and exits with its exit code.
func Main(cmd *cobra.Command) {
	ctx, stop := UntilSignal(context.Background())
	err := Execute(ctx, cmd)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.Name(), output.Text(message(err)))
		os.Exit(ExitCode(err))
	}
}

// message returns the text of an error of a program, whose interruption Go calls a cancelled context.
func message(err error) string {
	return strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted")
}

// Execute runs a root command. What cobra refuses before the function of a command runs, such as an unknown command or a flag that is required and
// missing, is a usage error.
func Execute(ctx context.Context, cmd *cobra.Command) error {
	began := false
	note(cmd, &began)
	err := cmd.ExecuteContext(ctx)
	if err != nil && !began {
		return Usage(err)
	}
	return err
}

// note lets a command and its subcommands set began when their functions begin.
func note(cmd *cobra.Command, began *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*began = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		note(sub, began)
	}
}

// usageError is an error that the caller can correct in a flag, an argument or an input file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as caused by an invalid flag, argument or input file, for which the process exits with code 2.
func Usage(err error) error { return usageError{err} }

// Usagef formats an error and marks it as a usage error, for which the process exits with code 2.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError wraps an error with the exit code of the process.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// WithExitCode wraps an error with the code with which the process is to exit.
func WithExitCode(code int, err error) error { return exitError{err, code} }

// ExitCode returns the exit code for an error: the code it was wrapped with, 2 for a usage error, 130 for an interrupt (as shells report
// it), and otherwise 1.
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

// NoArgs is a cobra.PositionalArgs that rejects arguments with a usage error.
func NoArgs(cmd *cobra.Command, args []string) error { return AtMost(0)(cmd, args) }

// Exactly returns a cobra.PositionalArgs that rejects any number of arguments but n with a usage error.
func Exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return Usagef("an argument is missing\nUsage: %s", cmd.UseLine())
		}
		return AtMost(n)(cmd, args)
	}
}

// AtMost returns a cobra.PositionalArgs that rejects more than n arguments with a usage error.
func AtMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) <= n:
			return nil
		case cmd.HasSubCommands():
			return Usagef("unknown command %.64q for %q\nUsage: %s", args[n], cmd.CommandPath(), cmd.UseLine())
		}
		return Usagef("%.64q is one argument too many\nUsage: %s", args[n], cmd.UseLine())
	}
}
