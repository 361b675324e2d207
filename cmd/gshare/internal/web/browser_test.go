package web

import (
	"flag"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

var screenshot = flag.String("screenshot", "", "also keep what the browser shows in this file")

// TestBrowser: a browser with a token shows the map; one without shows nothing of it.
func TestBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium")
	}
	address, viewer := served(t)+Path, token(t, "browser")
	allow(t, "browser")
	createCluster(t)
	for name, test := range map[string]struct {
		user  *url.Userinfo
		shown bool
	}{
		"with a token":    {url.UserPassword("me", viewer), true},
		"without a token": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			u.User = test.user
			if dom := browse(t, chromium, "--dump-dom", u.String()); strings.Contains(dom, "team/serve/main") != test.shown {
				t.Error(dom)
			}
			if test.shown && *screenshot != "" {
				browse(t, chromium, "--screenshot="+*screenshot, u.String())
			}
		})
	}
}

// browse runs a headless browser once. It has no sandbox, since tests may run as root, and accepts the self-signed certificate.
func browse(t *testing.T, chromium string, args ...string) string {
	t.Helper()
	all := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--window-size=900,760",
		"--user-data-dir=" + t.TempDir()}, args...)
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), chromium, all...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// createCluster creates two nodes and four pods, bound as the scheduler binds them.
func createCluster(t *testing.T) {
	t.Helper()
	for _, n := range []*v1.Node{nodeOf(t, "gpu-1", "A100", 2), nodeOf(t, "gpu-2", "H100", 1)} {
		if _, err := admin.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	team := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), team, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind(t, "gpu-1", asking("serve", "60"))
	bind(t, "gpu-1", asking("batch", "80"))
	bind(t, "gpu-1", asking("notebook", "40"))
	bind(t, "gpu-2", asking("train", "100"))
}

// bind creates a pod, and binds it with a placement to the first GPU of a node.
func bind(t *testing.T, node string, pod *v1.Pod) {
	t.Helper()
	made, err := admin.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: made.Name, UID: made.UID, Annotations: map[string]string{kube.AnnotationPlacement: placement(t, node, made)}},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := admin.CoreV1().Pods(pod.Namespace).Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
