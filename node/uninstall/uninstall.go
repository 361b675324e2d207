// Package uninstall removes what agents have left on a node: files, sockets, daemons, MIG instances, and annotations and capacity of the
// Node object. It begins when no pod of the node has a share.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/deviceplugin"
	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// ErrLeft is wrapped by errors of Step that a later call may resolve, for example once a pod has ended.
var ErrLeft = errors.New("left")

// claimDriver is the name of the driver for resource claims.
const claimDriver = "gshare.dev"

// Node is a node from which gshare is to be removed. Its agent has ended.
type Node struct {
	Config config.Configuration
	Name   string
	Client kubernetes.Interface
	MPS    mps.Daemons
	Stores *modelstore.Manager // nil: there are none
	// Clear removes the MIG instances that agents created on a GPU, except those that are in use.
	Clear func(uuid string) error
	// Pods lists the pods of the node, as its kubelet does.
	Pods func(context.Context) ([]*v1.Pod, error)
}

// Step removes everything of gshare that can be removed from the node now. It returns nil if nothing is left. If the error wraps ErrLeft,
// the caller should try again later.
func (n Node) Step(ctx context.Context) error {
	pods, err := n.Pods(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if kube.RequestsShare(p) && !kube.Ended(p) {
			return fmt.Errorf("%w: pod %s/%s has a share: delete it first", ErrLeft, p.Namespace, p.Name)
		}
		if n.hasGrant(p) && !kube.Ended(p) {
			return fmt.Errorf("%w: pod %s/%s has a share by a resource claim, which the kubelet gives back to a running agent only: undo the "+
				"uninstallation, delete the pod, and uninstall then", ErrLeft, p.Namespace, p.Name)
		}
	}
	if err := n.removeFiles(ctx); err != nil {
		return err
	}
	return n.cleanNodeObject(ctx)
}

// hasGrant reports whether an agent has left a grant for a container of the pod. This must be read from the records: the specification of a
// pod with a resource claim does not tell.
func (n Node) hasGrant(pod *v1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		id := grant.Owner{UID: pod.UID, Container: c.Name}.ID()
		text, err := atomicfile.TryRead(filepath.Join(n.Config.Directory, "grants", id, "grant.json"))
		if errors.Is(err, unix.EWOULDBLOCK) { // a process of the container holds a lease on it
			return true
		}
		if err != nil {
			continue
		}
		if _, err := grant.Decode(text); err == nil { // agents serve no records that cannot be decoded
			return true
		}
	}
	return false
}

// removeFiles removes sockets, CDI files, MPS daemons and the content of the agent's directory. It keeps the directory itself, which may be
// a mount point.
func (n Node) removeFiles(ctx context.Context) error {
	plugin := deviceplugin.Plugin{Directory: n.Config.Kubernetes.DevicePlugins}
	err := errors.Join(plugin.Sweep(), cdi.Directory(n.Config.Kubernetes.CDI).Clear(), n.MPS.Stop(ctx))
	if n.Stores != nil {
		err = errors.Join(err, n.Stores.Stop())
	}
	sockets := n.Config.Kubernetes // of the driver for claims; without them, the kubelet removes its ResourceSlices
	err = errors.Join(err, os.RemoveAll(filepath.Join(sockets.Plugins, claimDriver)),
		os.RemoveAll(filepath.Join(sockets.PluginRegistry, claimDriver+"-reg.sock")))
	entries, readErr := os.ReadDir(n.Config.Directory)
	for _, e := range entries {
		err = errors.Join(err, n.removeEntry(e.Name()))
	}
	return errors.Join(err, readErr)
}

// removeEntry deletes a file or subdirectory of the agent's directory. It first removes the MIG instances that a journal file lists:
// without the journal it would not be known that gshare created them.
func (n Node) removeEntry(name string) error {
	if uuid, ok := partition.JournalGPU(name); ok {
		if err := n.Clear(uuid); err != nil {
			return fmt.Errorf("%w: MIG instances of %s, in %s: %w", ErrLeft, uuid, name, err)
		}
	}
	return os.RemoveAll(filepath.Join(n.Config.Directory, name))
}

// cleanNodeObject removes the annotation and the extended resources of gshare from the Node object.
func (n Node) cleanNodeObject(ctx context.Context) error {
	nodes := n.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, present := node.Annotations[kube.AnnotationInventory]; present {
		if _, err := nodes.Patch(ctx, n.Name, types.MergePatchType, kube.RemoveAnnotationPatch(kube.AnnotationInventory), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if patch := kube.RemoveCapacityPatch(node); patch != nil {
		if node, err = nodes.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return checkCapacity(node)
}

// checkCapacity returns an error that wraps ErrLeft if the Node object still has extended resources of gshare.
func checkCapacity(node *v1.Node) error {
	var names []string
	for name := range node.Status.Capacity {
		if strings.HasPrefix(string(name), kube.ResourcePrefix) {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the kubelet counts %s until five minutes after the end of the agent", ErrLeft, strings.Join(names, ", "))
}
