package controlplane

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

// User is somebody whom the control plane knows.
type User string

const (
	// Admin may do everything (group system:masters).
	Admin User = "admin"
	// Scheduler is system:kube-scheduler, with the rights that Kubernetes gives it and no others.
	Scheduler User = "scheduler"
)

// Files in the state directory.
const (
	servingCert = "serving.crt"
	servingKey  = "serving.key"
	accountKey  = "service-account.key"
	tokenFile   = "tokens.csv"
)

// access holds the endpoints, tokens and certificates of the servers. The API server and the schedulers share one
// serving certificate, which clients trust.
type access struct {
	ca     []byte
	tokens map[User]string
}

// newAccess makes new secrets and writes into the folder what the servers need of them.
func newAccess(folder string) (*access, error) {
	crt, key, err := cert.GenerateSelfSignedCertKey(loopback, []net.IP{net.ParseIP(loopback)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	if _, _, err := keyutil.LoadOrGenerateKeyFile(filepath.Join(folder, accountKey)); err != nil {
		return nil, fmt.Errorf("make service account key: %w", err)
	}
	a := &access{ca: crt, tokens: map[User]string{Admin: rand.Text(), Scheduler: rand.Text()}}
	files := map[string][]byte{servingCert: crt, servingKey: key, tokenFile: a.tokenTable()}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write secrets: %w", err)
		}
	}
	return a, nil
}

// tokenTable returns a kube-apiserver token file: token, user, uid, groups.
func (a *access) tokenTable() []byte {
	return []byte(strings.Join([]string{
		a.tokens[Admin] + `,admin,admin,"system:masters"`,
		a.tokens[Scheduler] + `,system:kube-scheduler,scheduler`,
	}, "\n") + "\n")
}

// config has no client-side rate limit.
func (a *access) config(server string, user User) *rest.Config {
	return &rest.Config{
		Host:            server,
		BearerToken:     a.tokens[user],
		TLSClientConfig: rest.TLSClientConfig{CAData: a.ca},
		QPS:             -1,
	}
}

func (a *access) writeKubeconfig(path, server string, user User) error {
	const name = "gshare-lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.ca}
	config.AuthInfos[string(user)] = &clientcmdapi.AuthInfo{Token: a.tokens[user]}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: string(user)}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
