package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/web"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

const webLong = `Serve a web page that draws the slices of a cluster with their shares, as gshare map does, and refreshes itself.

The page is read-only and served over HTTPS. When the browser asks for a user name and a password, enter any name, and a token as the
password. The API server authenticates the token (TokenReview) and authorizes its user (SubjectAccessReview), who needs the verb get on
` + web.Path + `.

gshare web itself needs permission to list nodes and pods and to create TokenReviews and SubjectAccessReviews. The manifests
in manifests/web run it in the cluster.`

var _ = inCluster.add(webCommand)

func webCommand() *cobra.Command {
	var flags cluster.Flags
	var options web.Options
	cmd := &cobra.Command{
		Use: "web", Short: "Serve a page that shows what is packed on each GPU", Long: webLong,
		Example: "  gshare web\n  gshare web --address :10260 --tls-cert-file tls.crt --tls-private-key-file tls.key",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (options.CertFile == "") != (options.KeyFile == "") {
				return cli.Usagef("--tls-cert-file and --tls-private-key-file must be set together")
			}
			c, err := flags.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			return web.Serve(cmd.Context(), c.Client, options, func(address net.Addr) {
				fmt.Fprintf(cmd.OutOrStdout(), "Serving on https://%s%s\n", address, web.Path)
			})
		},
	}
	flags.AddTo(cmd)
	cmd.Flags().StringVar(&options.Address, "address", "127.0.0.1:10260", "host:port to serve on")
	cmd.Flags().StringVar(&options.CertFile, "tls-cert-file", "", "certificate file (PEM); without it, a self-signed certificate is generated")
	cmd.Flags().StringVar(&options.KeyFile, "tls-private-key-file", "", "private key file (PEM) of --tls-cert-file")
	return cmd
}
