// Package admission_test tries the admission policies of manifests/admission on a real API server.
package admission_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// server is how an administrator reaches the API server of all tests.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunWith(func(plane *controlplane.ControlPlane) int {
		server = plane.Config(access.Admin)
		return m.Run()
	}))
}
