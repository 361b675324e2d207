// Package access creates the credentials of a test control plane: a serving certificate, a key for service accounts, and a bearer token
// for each user.
package access

import (
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

// User is the name of a user, whom the API server authenticates by a bearer token.
type User string

const (
	// Admin is a member of system:masters, which may do everything.
	Admin User = "admin"
	// Scheduler has the rights of the default role system:kube-scheduler and no others.
	Scheduler User = "system:kube-scheduler"
	// ControllerManager has the rights of the default role system:kube-controller-manager and no others.
	ControllerManager User = "system:kube-controller-manager"
)

// Node returns the user of a node's kubelet, whom the Node authorizer and NodeRestriction confine to its own node.
func Node(name string) User { return User("system:node:" + name) }

// Names of the files that New writes.
const (
	ServingCert = "serving.crt"
	ServingKey  = "serving.key"
	AccountKey  = "service-account.key"
	TokenFile   = "tokens.csv" // as --token-auth-file of kube-apiserver expects it
)

// Credentials holds the serving certificate that all servers share and clients trust, and the bearer token of each user.
type Credentials struct {
	ca     []byte
	tokens map[User]string
}

// New creates the certificate, service account key and tokens for servers at the addresses, and writes their files into the folder. The
// first address is the certificate's name.
func New(folder string, users []User, addresses ...string) (*Credentials, error) {
	var ips []net.IP
	for _, address := range addresses {
		ips = append(ips, net.ParseIP(address))
	}
	crt, key, err := cert.GenerateSelfSignedCertKey(addresses[0], ips, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	if _, _, err := keyutil.LoadOrGenerateKeyFile(filepath.Join(folder, AccountKey)); err != nil {
		return nil, fmt.Errorf("make service account key: %w", err)
	}
	c := &Credentials{ca: crt, tokens: map[User]string{}}
	for _, user := range users {
		c.tokens[user] = rand.Text()
	}
	for name, content := range map[string][]byte{ServingCert: crt, ServingKey: key, TokenFile: c.tokenTable()} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write secrets: %w", err)
		}
	}
	return c, nil
}

func (c *Credentials) tokenTable() []byte {
	var table strings.Builder
	for user, token := range c.tokens {
		group := ""
		switch {
		case user == Admin:
			group = `,"system:masters"`
		case strings.HasPrefix(string(user), "system:node:"):
			group = `,"system:nodes"`
		}
		fmt.Fprintf(&table, "%s,%s,%s%s\n", token, user, user, group) // token, user, uid, groups
	}
	return []byte(table.String())
}

// Token returns the bearer token of a user, or "" if New was called without this user.
func (c *Credentials) Token(user User) string { return c.tokens[user] }

// Config returns a client configuration with the bearer token and without a rate limit. The caller may change it.
func (c *Credentials) Config(server, token string) *rest.Config {
	return &rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}, QPS: -1}
}

// Kubeconfig returns the content of a kubeconfig file with the bearer token.
func (c *Credentials) Kubeconfig(server, token string) ([]byte, error) {
	const name = "cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// WriteKubeconfig writes the kubeconfig of a user to a file that only its owner can read.
func (c *Credentials) WriteKubeconfig(path, server string, user User) error {
	content, err := c.Kubeconfig(server, c.Token(user))
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return nil
}
