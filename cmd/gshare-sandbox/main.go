// Command gshare-sandbox runs gshare on a real Kubernetes control plane with simulated nodes, on one machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/controlplane"
	"github.com/gshare-dev/gshare/plugins"
)

func main() {
	controlplane.Child(schedulerOptions()...)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gshare-sandbox:", err)
		os.Exit(exitCode(err))
	}
}

func schedulerOptions() []app.Option {
	var options []app.Option
	for name, factory := range plugins.All() {
		options = append(options, app.WithPlugin(name, factory))
	}
	return options
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gshare-sandbox",
		Short: "Try gshare on a real Kubernetes control plane with simulated GPU nodes",
		Long: "gshare-sandbox starts etcd, kube-apiserver and gshare-scheduler as child processes, fills them with simulated\n" +
			"nodes and pods, and checks what the scheduler made of them. It needs no root, no cluster and no GPU, and leaves\n" +
			"nothing behind: Ctrl-C stops and removes everything.",
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(replayCommand(), demoCommand(), benchCommand())
	return cmd
}

// usageError is a mistake of the caller's: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return 2
	case errors.Is(err, context.Canceled):
		return 130 // as the shell reports an interrupt
	}
	return 1
}
