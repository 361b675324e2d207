// Package uninstall takes back what agents have left on a node: files, sockets, daemons, MIG instances, and what they wrote on the
// Node object.
// Pods come first: it waits until no pod of the node has a share.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/deviceplugin"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// ErrLeft says that something is left, and what; another Step will find it gone, or not.
var ErrLeft = errors.New("left")

// Node is one whose agent has ended.
type Node struct {
	Config config.Configuration
	Name   string
	Client kubernetes.Interface
	MPS    mps.Daemons
	// Clear removes the MIG instances that agents made on a GPU, none that is in use.
	Clear func(uuid string) error
	// Pods lists the pods of the node, as its kubelet does.
	Pods func(context.Context) ([]*v1.Pod, error)
}

// Step takes back what can be taken back now. It returns nil when nothing is left; an error wraps ErrLeft where waiting helps.
func (n Node) Step(ctx context.Context) error {
	pods, err := n.Pods(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if kube.Asks(p) && !kubelet.Ended(p) {
			return fmt.Errorf("%w: pod %s/%s has a share: delete it first", ErrLeft, p.Namespace, p.Name)
		}
	}
	if err := n.removeFiles(ctx); err != nil {
		return err
	}
	return n.forget(ctx)
}

// removeFiles leaves the agent's directory, which may be a mount, but nothing in it.
func (n Node) removeFiles(ctx context.Context) error {
	plugin := deviceplugin.Plugin{Directory: n.Config.Kubernetes.DevicePlugins}
	err := errors.Join(plugin.Sweep(), cdi.Directory(n.Config.Kubernetes.CDI).Clear(), n.MPS.Stop(ctx))
	entries, readErr := os.ReadDir(n.Config.Directory)
	for _, e := range entries {
		err = errors.Join(err, n.remove(e.Name()))
	}
	return errors.Join(err, readErr)
}

// remove takes a file or a folder away; a journal only after the MIG instances in it, which would count as others' without it.
func (n Node) remove(name string) error {
	if uuid, ok := partition.JournalGPU(name); ok {
		if err := n.Clear(uuid); err != nil {
			return fmt.Errorf("%w: MIG instances of %s, in %s: %w", ErrLeft, uuid, name, err)
		}
	}
	return os.RemoveAll(filepath.Join(n.Config.Directory, name))
}

// forget takes gshare's words off the Node object.
func (n Node) forget(ctx context.Context) error {
	nodes := n.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, present := node.Annotations[kube.AnnotationInventory]; present {
		if _, err := nodes.Patch(ctx, n.Name, types.MergePatchType, kube.ForgetPatch(kube.AnnotationInventory), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if patch := kube.NoCapacityPatch(node); patch != nil {
		if node, err = nodes.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return counted(node)
}

// counted says what the node still counts.
func counted(node *v1.Node) error {
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
