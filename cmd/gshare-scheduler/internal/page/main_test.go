package page

import (
	"context"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/controlplane"
)

// plane is the API server of all tests; admin may do everything in it.
var (
	plane *controlplane.ControlPlane
	admin *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	controlplane.Child()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if plane, err = controlplane.Start(context.Background(), controlplane.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "start API server:", err)
		return 1
	}
	admin = kubernetes.NewForConfigOrDie(plane.Config(controlplane.Admin))
	status := m.Run()
	if err := plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop API server:", err)
		return 1
	}
	return status
}
