// Package helm_test renders and installs the Helm chart with the real helm, and compares it with the kustomize overlays. It is one
// of the long tests, since helm takes minutes to compile: hack/test.sh long runs it.
package helm_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const root = "../.."

// program builds helm, from the module hack/helm, into bin/.
var program = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(root + "/bin/helm")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-C", root+"/hack/helm", "-o", filepath.Dir(path)+"/", "tool")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build helm: %w\n%s", err, out)
	}
	return path, nil
})

// helm runs a helm command in the root of the checkout, and returns its output.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, &out, &complaints
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+kubeconfig)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %v: %w: %s", args, err, complaints.Bytes())
	}
	return out.String(), nil
}
