package web

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// plane is the API server of all tests; admin is a client with all permissions.
var (
	plane *controlplane.ControlPlane
	admin *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunWith(func(started *controlplane.ControlPlane) int {
		plane = started
		admin = kubernetes.NewForConfigOrDie(plane.Config(access.Admin))
		return m.Run()
	}))
}
