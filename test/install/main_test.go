// Package install_test checks what a cluster is set up with: the manifests and their overlays, the dashboard and the alerts, the
// documents and their examples.
package install_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/controlplane"
)

// server is how an administrator reaches the API server of all tests, and kubeconfig the file that says the same.
var (
	server     *rest.Config
	kubeconfig string
)

func TestMain(m *testing.M) {
	controlplane.Child()
	os.Exit(start(m))
}

func start(m *testing.M) int {
	plane, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start API server:", err)
		return 1
	}
	server, kubeconfig = plane.Config(controlplane.Admin), plane.Kubeconfig(controlplane.Admin)
	status := m.Run()
	if err := plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop API server:", err)
		return 1
	}
	return status
}
