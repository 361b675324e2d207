package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/doctor"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/cmd/internal/release"
)

var _ = inCluster.add(versionCommand)

func versionCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	var client bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of gshare and of the cluster",
		Long: "Print the versions of this program, the API server, and gshare's schedulers, node agents, controllers and gateways. A pod without\n" +
			"the annotation gshare.dev/version is listed with the tag of its image.\n\nSupported versions: " + doctor.SkewPolicy + ".\n" +
			"The exit code is 1 if the versions differ by more.",
		Example: "  gshare version\n  gshare version --client\n  gshare version -o json", Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := versions(cmd, &flags, client)
			if err != nil {
				return err
			}
			if err := format.Write(cmd.OutOrStdout(), found, func(w io.Writer) error { return writeVersions(w, found) }); err != nil {
				return err
			}
			for _, v := range found {
				if v.Skewed {
					return errors.New("unsupported version skew; supported: " + doctor.SkewPolicy)
				}
			}
			return nil
		},
	}
	flags.AddTo(cmd)
	format.AddTo(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "print only the version of this program")
	return cmd
}

// versions returns the version of this program and, unless clientOnly is set, those of the components in the cluster.
func versions(cmd *cobra.Command, flags *cluster.Flags, clientOnly bool) ([]doctor.Version, error) {
	own := release.Version()
	if clientOnly {
		return []doctor.Version{{Component: "gshare", Version: own, Count: 1}}, nil
	}
	c, err := flags.Connect()
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("%w (gshare version --client needs no cluster)", err))
	}
	return doctor.Versions(cmd.Context(), c.Client, own), nil
}

func writeVersions(w io.Writer, found []doctor.Version) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COMPONENT\tVERSION\tRUNNING\t")
	for _, v := range found {
		note := v.Error
		switch {
		case v.Skewed:
			note = "unsupported version skew"
		case v.Image:
			note = "tag of the image"
		}
		output.Fprintf(t, "%s\t%s\t%d\t%s\n", v.Component, cmp.Or(v.Version, "unknown"), v.Count, note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := output.Fprintf(w, "supported: %s\n", doctor.SkewPolicy)
	return err
}
