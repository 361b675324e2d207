package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// User is somebody whom the API server knows by a token.
type User string

const (
	// Admin may do everything (group system:masters).
	Admin User = "admin"
	// Scheduler is system:kube-scheduler.
	Scheduler User = "system:kube-scheduler"
	// ControllerManager is system:kube-controller-manager.
	ControllerManager User = "system:kube-controller-manager"
)

// NodeUser returns a node's kubelet, held to its own node by the Node authorizer and NodeRestriction.
func NodeUser(node string) User { return User("system:node:" + node) }

// Files below Dir.
const (
	servingCert = "kubernetes/serving.crt"
	servingKey  = "kubernetes/serving.key"
	accountKey  = "kubernetes/service-account.key"
	tokenFile   = "kubernetes/tokens.csv"
)

// access is how to be known to the servers. They share one serving certificate, which clients trust.
type access struct {
	ca     []byte
	tokens map[User]string
}

// newAccess makes new secrets and writes what the servers need of them below the folder.
func newAccess(folder string, users []User) (*access, error) {
	addresses := []net.IP{net.ParseIP(controlAddress), net.ParseIP("127.0.0.1")}
	crt, key, err := cert.GenerateSelfSignedCertKey(controlAddress, addresses, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	a := &access{ca: crt, tokens: map[User]string{}}
	for _, user := range users {
		a.tokens[user] = rand.Text()
	}
	if _, _, err := keyutil.LoadOrGenerateKeyFile(filepath.Join(folder, accountKey)); err != nil {
		return nil, fmt.Errorf("make service account key: %w", err)
	}
	for name, content := range map[string][]byte{servingCert: crt, servingKey: key, tokenFile: a.tokenTable()} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write secrets: %w", err)
		}
	}
	return a, nil
}

// tokenTable returns a kube-apiserver token file: token, user, uid, groups.
func (a *access) tokenTable() []byte {
	var table strings.Builder
	for user, token := range a.tokens {
		group := ""
		switch {
		case user == Admin:
			group = `,"system:masters"`
		case strings.HasPrefix(string(user), "system:node:"):
			group = `,"system:nodes"`
		}
		fmt.Fprintf(&table, "%s,%s,%s%s\n", token, user, user, group)
	}
	return []byte(table.String())
}

// Token returns the user's token.
func (c *Cluster) Token(user User) string { return c.access.tokens[user] }

// Config returns a new client configuration for the user, which the caller may change. It has no rate limit.
func (c *Cluster) Config(user User) *rest.Config { return c.ConfigFor(c.Token(user)) }

// ConfigFor is Config for any token, such as a service account's.
func (c *Cluster) ConfigFor(token string) *rest.Config {
	return &rest.Config{
		Host:            server,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.access.ca},
		Dial:            c.dial,
		QPS:             -1,
	}
}

func (c *Cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.control.Dial(ctx, network, address)
}

// Kubeconfig returns a kubeconfig file for a program that runs on a machine of the cluster.
func (c *Cluster) Kubeconfig(token string) ([]byte, error) {
	const name = "cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.access.ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// writeKubeconfig writes the user's kubeconfig below Dir and returns its path.
func (c *Cluster) writeKubeconfig(user User) (string, error) {
	content, err := c.Kubeconfig(c.Token(user))
	if err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	path := filepath.Join(c.Dir, "kubernetes", strings.ReplaceAll(string(user), ":", "-")+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}
