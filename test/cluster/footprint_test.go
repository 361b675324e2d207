package cluster_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// footprint returns everything of gshare that is left on the API server and on the nodes, except for events, which expire.
func (i *installed) footprint(t *testing.T) (found []string) {
	t.Helper()
	found = i.objects(t)
	for _, node := range i.Nodes {
		object, err := i.Client().CoreV1().Nodes().Get(i.ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name := range object.Annotations {
			if strings.HasPrefix(name, "gshare.dev/") {
				found = append(found, "annotation "+name)
			}
		}
		for name := range object.Labels {
			if strings.HasPrefix(name, "gshare.dev/") {
				found = append(found, "label "+name)
			}
		}
		found = append(found, counted(object)...)
		found = append(found, filesOf(t, node)...)
	}
	slices.Sort(found)
	return found
}

// counted returns the resources in a node's capacity that are gshare's.
func counted(node *v1.Node) (found []string) {
	for name := range node.Status.Capacity {
		if strings.HasPrefix(string(name), "gshare/") {
			found = append(found, "capacity "+string(name))
		}
	}
	slices.Sort(found)
	return found
}

// objects returns all objects that have gshare in their name or namespace.
func (i *installed) objects(t *testing.T) (found []string) {
	t.Helper()
	client, err := dynamic.NewForConfig(i.Config(access.Admin))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := i.Client().Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || kind.Name == "events" {
				continue
			}
			objects, err := client.Resource(group.WithResource(kind.Name)).List(i.ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatalf("%s: %v", kind.Name, err)
			}
			for _, o := range objects.Items {
				if name := kind.Name + " " + o.GetNamespace() + "/" + o.GetName(); strings.Contains(name, "gshare") {
					found = append(found, name)
				}
			}
		}
	}
	return found
}

// filesOf returns gshare's files, sockets and mounts on a node, except for empty directories in /run, which disappear at the next
// boot.
func filesOf(t *testing.T, node *cluster.Node) (found []string) {
	t.Helper()
	root := node.Machine.HostPath("/")
	for _, folder := range []string{"run", "etc", "var/lib/kubelet/device-plugins", "var/lib/kubelet/plugins", "usr/lib/gshare", "usr/local/bin"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			name := strings.TrimPrefix(path, root)
			switch {
			case os.IsNotExist(err):
				return nil
			case err != nil:
				return err
			case entry.IsDir() && (name == "/run/containerd" || name == "/run/shared"): // of the container runtime, and of the test itself
				return fs.SkipDir
			case !entry.IsDir() && strings.Contains(name, "gshare"):
				found = append(found, "file "+name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := os.ReadFile(filepath.Join(root, "../mountinfo"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.Contains(fields[4], "gshare") && !strings.Contains(fields[4], "gshare-cluster-") {
			found = append(found, "mount "+fields[4])
		}
	}
	return found
}
