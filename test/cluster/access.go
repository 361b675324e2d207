package cluster

import (
	"context"
	"net"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// Token returns the user's bearer token.
func (c *Cluster) Token(user access.User) string { return c.credentials.Token(user) }

// Config returns a client configuration for the user, which the caller may change. It has no rate limit.
func (c *Cluster) Config(user access.User) *rest.Config { return c.ConfigFor(c.Token(user)) }

// ConfigFor returns a client configuration for the bearer of any token, such as a service account's.
func (c *Cluster) ConfigFor(token string) *rest.Config {
	config := c.credentials.Config(server, token)
	config.Dial = c.dial
	return config
}

func (c *Cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.control.Dial(ctx, network, address)
}

// Kubeconfig returns a kubeconfig file for a program that runs on a machine of the cluster.
func (c *Cluster) Kubeconfig(token string) ([]byte, error) {
	return c.credentials.Kubeconfig(server, token)
}

// writeKubeconfig writes the user's kubeconfig below Dir and returns its path.
func (c *Cluster) writeKubeconfig(user access.User) (string, error) {
	path := filepath.Join(c.Dir, "kubernetes", strings.ReplaceAll(string(user), ":", "-")+".kubeconfig")
	return path, c.credentials.WriteKubeconfig(path, server, user)
}
