// Package install_test checks what is installed in a cluster: the manifests and their overlays, the dashboard and the alerts,
// and the documentation with its examples.
package install_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// server is an administrator's client configuration for the API server of all tests, and kubeconfig the equivalent file.
var (
	server     *rest.Config
	kubeconfig string
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunWith(func(plane *controlplane.ControlPlane) int {
		server, kubeconfig = plane.Config(access.Admin), plane.Kubeconfig(access.Admin)
		return m.Run()
	}))
}
