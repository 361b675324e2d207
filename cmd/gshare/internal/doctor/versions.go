package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	announced "github.com/gshare-dev/gshare/cmd/internal/release"
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

// Versions returns the versions of this client, the API server, the schedulers and the node agents. Schedulers and agents publish theirs as
// an annotation of their pods.
func Versions(ctx context.Context, api kubernetes.Interface, client string) []Version {
	found := []Version{{Component: componentPrefix, Version: client, Count: 1}}
	info, err := api.Discovery().ServerVersion()
	if err != nil {
		return append(found, Version{Component: "kube-apiserver", Error: err.Error()})
	}
	found = append(found, Version{Component: "kube-apiserver", Version: info.GitVersion, Count: 1})
	found = append(found, podVersions(ctx, api, componentPrefix+"-scheduler", SchedulerPods)...)
	found = append(found, podVersions(ctx, api, componentPrefix+"-node", AgentPods)...)
	markSkewed(found)
	return found
}

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
		if pod := &list.Items[i]; !cluster.Ended(pod) {
			version := Version{Component: component, Version: announced.Of(pod)}
			if version.Version == "" {
				version.Version, version.Image = Tag(pod.Spec.Containers[0].Image), true
			}
			count[version]++
		}
	}
	if len(count) == 0 {
		return []Version{{Component: component, Error: "no pods in " + cluster.Namespace}}
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
