package doctor

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
)

// Version is a component and its version, with how many of it there are.
type Version struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	Count     int    `json:"count"`
	Skewed    bool   `json:"skewed,omitempty"` // further from the client than the policy allows
	Error     string `json:"error,omitempty"`  // why it is not known
}

// Versions asks what runs in a cluster, to be held against the version of the client. The version of a component is the tag of its
// image.
func Versions(ctx context.Context, client kubernetes.Interface, own string) []Version {
	found := []Version{{Component: "gshare", Version: own, Count: 1}}
	info, err := client.Discovery().ServerVersion()
	if err != nil {
		return append(found, Version{Component: "kube-apiserver", Error: err.Error()})
	}
	found = append(found, Version{Component: "kube-apiserver", Version: info.GitVersion, Count: 1})
	found = append(found, images(ctx, client, "gshare-scheduler", SchedulerPods, own)...)
	return append(found, images(ctx, client, "gshare-node", AgentPods, own)...)
}

func images(ctx context.Context, client kubernetes.Interface, component, selector, own string) (found []Version) {
	list, err := client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return []Version{{Component: component, Error: err.Error()}}
	}
	count := map[string]int{}
	for i := range list.Items {
		if !cluster.Ended(&list.Items[i]) {
			count[Tag(list.Items[i].Spec.Containers[0].Image)]++
		}
	}
	if len(count) == 0 {
		return []Version{{Component: component, Error: "none runs in " + cluster.Namespace}}
	}
	for _, tag := range slices.Sorted(maps.Keys(count)) {
		found = append(found, Version{Component: component, Version: tag, Count: count[tag], Skewed: Skewed(tag, own)})
	}
	return found
}
