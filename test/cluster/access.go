package cluster

import (
	"context"
	"net"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// Token returns the bearer token of a user.
func (c *Cluster) Token(user access.User) string { return c.credentials.Token(user) }

// Config returns a new client configuration for a user, without a rate limit. The caller may change it.
func (c *Cluster) Config(user access.User) *rest.Config { return c.ConfigFor(c.Token(user)) }

// ConfigFor returns a new client configuration for any bearer token, such as a service account's, without a rate limit.
func (c *Cluster) ConfigFor(token string) *rest.Config {
	config := c.credentials.Config(server, token)
	config.Dial = c.dial
	return config
}

func (c *Cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.control.Dial(ctx, network, address)
}

// Kubeconfig returns the content of a kubeconfig file with a bearer token, for programs that run on a machine of the cluster.
func (c *Cluster) Kubeconfig(token string) ([]byte, error) {
	return c.credentials.Kubeconfig(server, token)
}

// writeKubeconfig writes a user's kubeconfig file to the directory of the cluster and returns its path.
func (c *Cluster) writeKubeconfig(user access.User) (string, error) {
	path := filepath.Join(c.Dir, "kubernetes", strings.ReplaceAll(string(user), ":", "-")+".kubeconfig")
	return path, c.credentials.WriteKubeconfig(path, server, user)
}
