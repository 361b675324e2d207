// Package release is the version of a program of gshare's, and where a program that runs in a pod says it.
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

// version is set when a release is linked: -ldflags "-X github.com/gshare-dev/gshare/cmd/internal/release.version=v0.2.0".
var version string

// Version is that of the release; of another build what the Go tool stamped: the tag, a pseudo-version of the commit, or (devel).
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(version, "(devel)")
	}
	return cmp.Or(version, info.Main.Version, "(devel)")
}

// annotation is on the pods of gshare's own programs.
const annotation = "gshare.dev/version"

// Of is what the program in a pod says of its version; empty if it says nothing.
func Of(pod *v1.Pod) string { return pod.Annotations[annotation] }

const (
	again = 5 * time.Second  // between two tries
	limit = 10 * time.Second // of one
)

// Announce writes the version on the pod in which this program runs, by POD_NAMESPACE and POD_NAME; without these it does nothing. It
// tries until it is done, it may not, or the context ends. subresource is the one that the program may patch, if not the pod itself.
func Announce(ctx context.Context, client kubernetes.Interface, subresource ...string) error {
	namespace, name := os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	if namespace == "" || name == "" {
		return nil
	}
	patch := kube.AnnotationPatch(annotation, Version())
	return wait.PollUntilContextCancel(ctx, again, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, subresource...)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
			return false, fmt.Errorf("write %s on pod %s/%s: %w", annotation, namespace, name, err)
		}
		return err == nil, nil // the API server may be away
	})
}
