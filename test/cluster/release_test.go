package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// TestRelease installs the output of make release, and nothing else, on a node without a registry, with the three commands of docs/install.md.
// GSHARE_RELEASE is the directory of the release.
func TestRelease(t *testing.T) {
	release := os.Getenv("GSHARE_RELEASE")
	if release == "" {
		t.Skip("GSHARE_RELEASE is not set")
	}
	driver := buildDriver(t)
	i := startWithImages(t, []cluster.Image{workloadImage(t, driver)})
	i.addGPUs(t, driver)
	i.mountMPS(t, driver)
	overlay := i.releaseOverlay(t, release)

	began := time.Now()
	images := glob(t, filepath.Join(release, "gshare-images_*.tar"))
	if _, err := i.Nodes[0].Machine.Run(i.ctx, i.repository(t, "bin/cluster/ctr"), "--namespace=k8s.io", "images", "import", images); err != nil {
		t.Fatal(err)
	}
	i.kubectl(t, "label", "node", "--all", "gshare.dev/gpus=true")
	i.kubectl(t, "apply", "--server-side", "-k", overlay)
	i.rolled(t)
	i.waitInventory(i.ctx, t, i.Nodes[0])
	i.leastPod(t)
	t.Logf("from the files of the release to a pod with a share: %v", time.Since(began).Round(time.Second))
}

// mountMPS copies the simulated MPS programs to where the agent's pod sees them. On a real node, NVIDIA's container runtime adds the programs to the
// pod.
func (i *installed) mountMPS(t *testing.T, driver string) {
	t.Helper()
	folder := i.Nodes[0].Machine.HostPath("/etc/cdi")
	for path, source := range mpsPrograms(t, driver) {
		if filepath.Dir(path) != "/usr/lib/gshare" {
			continue // a library that is in the image
		}
		content, err := os.ReadFile(source)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(path)), content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// releaseOverlay returns a kustomize overlay of the release's gshare.yaml, with only the changes that simulated GPUs and a cluster without kube-proxy
// need.
func (i *installed) releaseOverlay(t *testing.T, release string) string {
	t.Helper()
	folder := filepath.Join(i.Dir, "install-release")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(i.Config(access.Admin).Host, "https://"), ":")
	text := "resources: [gshare.yaml]\npatches:\n"
	for _, target := range [][3]string{{"DaemonSet", "gshare-node", "agent"}, {"Deployment", "gshare-scheduler", "scheduler"}} {
		text += fmt.Sprintf(`- patch: |
    apiVersion: apps/v1
    kind: %s
    metadata: {name: %s, namespace: gshare-system}
    spec: {template: {spec: {containers: [{name: %s, env: [{name: KUBERNETES_SERVICE_HOST, value: "%s"}, {name: KUBERNETES_SERVICE_PORT, value: "%s"}]}]}}}
`, target[0], target[1], target[2], host, port)
	}
	configuration := strings.Replace(nodeConfiguration, "/usr/lib/gshare/nvidia", "/etc/cdi/nvidia", 1)
	text += "- target: {kind: ConfigMap, name: gshare-node-config-.*}\n  patch: |\n    - op: replace\n      path: /data/node.yaml\n      value: |\n        " +
		strings.ReplaceAll(strings.TrimSpace(configuration), "\n", "\n        ") + "\n"
	manifest, err := os.ReadFile(filepath.Join(release, "gshare.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"kustomization.yaml": []byte(text), "gshare.yaml": manifest} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}
