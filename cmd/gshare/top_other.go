//go:build !linux

package main

import (
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
)

// addSocket adds no flag: machines are shared on Linux only.
func addSocket(*pflag.FlagSet, *string) {}

// watchMachine returns a usage error: machines are shared on Linux only.
func watchMachine(*cobra.Command, *output.Format, string, time.Duration, int) error {
	return cli.Usagef("gshare does not share machines with %s; --cluster shows the shares of a cluster", runtime.GOOS)
}
