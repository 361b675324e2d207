// Package admission_test tests the admission policies of the manifests on a real API server.
package admission_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// server is an administrator's client configuration for the API server that the tests share.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunWith(func(plane *controlplane.ControlPlane) int {
		server = plane.Config(access.Admin)
		return m.Run()
	}))
}
