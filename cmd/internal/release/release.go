// Package release returns the version of gshare's programs, and publishes it on the pods that they run in.
package release

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// version is the version of a release, set by the linker: -ldflags "-X github.com/gshare-dev/gshare/cmd/internal/release.version=v0.2.0".
var version string

// Version returns the version of this build. For builds other than releases, it returns what the Go toolchain recorded: a tag, the
// pseudo-version of a commit, or (devel).
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(version, "(devel)")
	}
	return cmp.Or(version, info.Main.Version, "(devel)")
}

// annotation is the version of the program in a pod of gshare's own components. `kubectl gshare version` lists the versions.
//
//	kind: annotation
//	object: pod of gshare
//	written by: node agent, scheduler, gshare-controller
//	values: a version
//	default: the tag of the image is shown instead
//	example: gshare.dev/version: v0.1.0
const annotation = "gshare.dev/version"

// Of returns the version that a component has published on its pod, or an empty string if it has published none.
func Of(pod *v1.Pod) string { return pod.Annotations[annotation] }

const (
	retryInterval = 5 * time.Second
	patchTimeout  = 10 * time.Second
)

// Announce writes the version to the annotations of the pod that this program runs in, named by POD_NAMESPACE and POD_NAME. Without these
// variables, it does nothing. It retries until it succeeds, permission is denied, or the context is cancelled. subresource names the
// subresource that the program may patch, if not the pod itself.
func Announce(ctx context.Context, client kubernetes.Interface, subresource ...string) error {
	namespace, name := os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	if namespace == "" || name == "" {
		return nil
	}
	patch := kube.AnnotationPatch(annotation, Version())
	return wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, patchTimeout)
		defer cancel()
		_, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, subresource...)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
			return false, fmt.Errorf("write %s on pod %s/%s: %w", annotation, namespace, name, err)
		}
		return err == nil, nil // retry: the API server may be unavailable
	})
}
