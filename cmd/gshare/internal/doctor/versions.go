package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	announced "github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Version is a component of the installation with its version and the number of instances that run it.
type Version struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	Count     int    `json:"count"`
	Image     bool   `json:"image,omitempty"`  // the version is the tag of the image
	Skewed    bool   `json:"skewed,omitempty"` // unsupported together with another component
	Error     string `json:"error,omitempty"`  // why the version is unknown
}

// componentPrefix is the common prefix of the names of gshare's components.
const componentPrefix = "gshare"

// Versions returns the versions of this client, the API server, the schedulers, the node agents, and any controllers and gateways. gshare's
// components publish theirs as an annotation of their pods.
func Versions(ctx context.Context, api kubernetes.Interface, client string) []Version {
	found := []Version{{Component: componentPrefix, Version: client, Count: 1}}
	info, err := api.Discovery().ServerVersion()
	if err != nil {
		return append(found, Version{Component: "kube-apiserver", Error: err.Error()})
	}
	found = append(found, Version{Component: "kube-apiserver", Version: info.GitVersion, Count: 1})
	found = append(found, podVersions(ctx, api, componentPrefix+"-scheduler", SchedulerPods)...)
	found = append(found, podVersions(ctx, api, componentPrefix+"-node", AgentPods)...)
	for _, serving := range []struct{ component, selector string }{{"-controller", ControllerPods}, {"-gateway", GatewayPods}} {
		for _, v := range podVersions(ctx, api, componentPrefix+serving.component, serving.selector) {
			if v.Error != noPods { // clusters that serve no functions have none
				found = append(found, v)
			}
		}
	}
	markSkewed(found)
	return found
}

// noPods is the error of a component that is not installed.
const noPods = "no pods in " + cluster.Namespace

// markSkewed marks the components of gshare whose combination of versions is unsupported.
func markSkewed(found []Version) {
	for i := range found {
		for _, other := range found {
			if strings.HasPrefix(found[i].Component, componentPrefix) && strings.HasPrefix(other.Component, componentPrefix) && Skewed(found[i].Version, other.Version) {
				found[i].Skewed = true
			}
		}
	}
}

// podVersions returns the versions that the pods matched by a label selector run, or one entry with an error if they cannot be read.
func podVersions(ctx context.Context, client kubernetes.Interface, component, selector string) (found []Version) {
	list, err := client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return []Version{{Component: component, Error: err.Error()}}
	}
	count := map[Version]int{}
	for i := range list.Items {
		if pod := &list.Items[i]; !kube.Ended(pod) {
			version := Version{Component: component, Version: announced.Of(pod)}
			if image := imageOf(&pod.Spec); version.Version == "" && image != "" {
				version.Version, version.Image = Tag(image), true
			}
			count[version]++
		}
	}
	if len(count) == 0 {
		return []Version{{Component: component, Error: noPods}}
	}
	for version, n := range count {
		version.Count = n
		found = append(found, version)
	}
	slices.SortFunc(found, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Count, b.Count))
	})
	return found
}

// release is the major and minor number of a version, without its patch level.
type release struct{ major, minor uint }

func parseRelease(text string) (*release, error) {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return nil, err
	}
	return &release{v.Major(), v.Minor()}, nil
}

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) atLeast(o release) bool {
	return r.major > o.major || r.major == o.major && r.minor >= o.minor
}

// The oldest supported versions of Kubernetes: those on which gshare was tried. The node agent reads pods from the kubelet's PodsAPI, which is
// on by default from 1.37. Before that, the node agent needs the feature gate of 1.36, or permission to read pods from the API server.
var (
	minServer  = release{1, 35}
	minKubelet = release{1, 35}
	hasPodsAPI = release{1, 37}
)

// SkewPolicy is a sentence that names the supported combinations of component versions.
const SkewPolicy = "scheduler, agents, controller and gateways within one minor version of each other, gshare within one minor version of all, " +
	"Kubernetes API server and kubelets 1.35 or later"

// Skewed reports whether two versions of gshare are more than one minor version apart. It returns false for a text that is not a version,
// such as dev, and for the v0.0.0 of an untagged commit.
func Skewed(a, b string) bool {
	x, errX := parseRelease(a)
	y, errY := parseRelease(b)
	return errX == nil && errY == nil && *x != release{} && *y != release{} && (x.major != y.major || max(x.minor, y.minor)-min(x.minor, y.minor) > 1)
}

// imageOf returns the image of the first container; empty if there is no container.
func imageOf(pod *v1.PodSpec) string {
	if len(pod.Containers) == 0 {
		return ""
	}
	return pod.Containers[0].Image
}

// Tag returns the tag of an image reference, or latest without one.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}
	return "latest"
}
