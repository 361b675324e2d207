package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// grantsOn returns the grants that a node's agent has written to disk.
func (a *agents) grantsOn(node *cluster.Node) (grants []grant.Grant, err error) {
	files, err := filepath.Glob(node.Machine.HostPath("/run/gshare/grants/*/grant.json"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		g, err := grant.Decode(text)
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, err
}

// checkBooks compares the records of the API server, the agent and the kubelet about a node. Every running container with a share must have
// exactly one grant, which equals its placement and has the device IDs that the kubelet has recorded; no other container may have a grant.
// Grants through resource claims must match the claims' allocations.
func (a *agents) checkBooks(ctx context.Context, node *cluster.Node) error {
	grants, err := a.grantsOn(node)
	if err != nil {
		return err
	}
	if err := a.checkClaimBooks(ctx, node, grants); err != nil {
		return err
	}
	grants = slices.DeleteFunc(grants, func(g grant.Grant) bool { return g.ByClaim() })
	pods, err := a.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
	if err != nil {
		return err
	}
	deviceIDs, err := deviceIDsOn(ctx, node)
	if err != nil {
		return err
	}
	memory, holders := map[string]share.Bytes{}, map[string]string{}
	placed := 0
	for _, pod := range pods.Items {
		if !kube.RequestsShare(&pod) || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
			continue
		}
		placement, present, err := kube.PlacementOf(&pod)
		if err != nil || !present {
			return fmt.Errorf("pod %s: placement: %v", pod.Name, err)
		}
		for _, c := range placement.Containers {
			placed++
			i := slices.IndexFunc(grants, func(g grant.Grant) bool { return g.UID == pod.UID && g.Container == c.Name })
			if i < 0 {
				return fmt.Errorf("%s/%s is not granted", pod.Name, c.Name)
			}
			if g := grants[i]; !reflect.DeepEqual(g.VGPUs, c.VGPUs) || !slices.Equal(g.DeviceIDs, deviceIDs[pod.Name+"/"+c.Name]) {
				return fmt.Errorf("%s/%s: granted %+v for device IDs %v; placed %+v, the kubelet says %v",
					pod.Name, c.Name, g.VGPUs, g.DeviceIDs, c.VGPUs, deviceIDs[pod.Name+"/"+c.Name])
			}
			for _, v := range c.VGPUs {
				memory[v.Slice] += grants[i].Level().Charge(v.Share, grants[i].Residency.Memory).Memory
			}
			for _, deviceID := range grants[i].DeviceIDs {
				if other := holders[deviceID]; other != "" {
					return fmt.Errorf("device ID %s is %s's and %s's", deviceID, other, pod.Name)
				}
				holders[deviceID] = pod.Name
			}
		}
	}
	if placed != len(grants) {
		return fmt.Errorf("%d containers live, %d are granted", placed, len(grants))
	}
	for slice, sum := range memory {
		if sum > 81920*share.MiB {
			return fmt.Errorf("slice %s: %d bytes are granted", slice, sum)
		}
	}
	return nil
}

func deviceIDsOn(ctx context.Context, node *cluster.Node) (map[string][]string, error) {
	conn, err := grpc.NewClient("unix://"+node.Machine.HostPath(cluster.PodResources), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := resources.NewPodResourcesListerClient(conn).List(ctx, &resources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	deviceIDs := map[string][]string{}
	for _, pod := range answer.PodResources {
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				if d.ResourceName == string(kube.ResourceVGPU) {
					deviceIDs[pod.Name+"/"+c.Name] = append(deviceIDs[pod.Name+"/"+c.Name], d.DeviceIds...)
				}
			}
			slices.Sort(deviceIDs[pod.Name+"/"+c.Name])
		}
	}
	return deviceIDs, nil
}

// waitBooks blocks until checkBooks succeeds for a node, and returns how long that took.
func (a *agents) waitBooks(ctx context.Context, t *testing.T, node *cluster.Node) time.Duration {
	t.Helper()
	began := time.Now()
	last := errors.New("not looked at yet")
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = a.checkBooks(ctx, node)
		return last == nil, nil
	})
	if err != nil {
		t.Errorf("books of %s: %v", node.Name, last)
	}
	return time.Since(began)
}

// clear deletes all pods of the default namespace and waits until no grants are left.
func (a *agents) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return a.Client().CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}) == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range a.Nodes {
		a.waitGrants(ctx, t, node, 0)
	}
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := a.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, nil
	})
	if err != nil {
		t.Fatalf("pods are left: %v", err)
	}
}

// waitGrants blocks until exactly the given number of containers on a node have grants, according to both the agent's metrics and its
// directory, and returns how long that took.
func (a *agents) waitGrants(ctx context.Context, t *testing.T, node *cluster.Node, want int) time.Duration {
	t.Helper()
	began := time.Now()
	var grants []grant.Grant
	var counted float64
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var err error
		if grants, err = a.grantsOn(node); err != nil {
			return false, nil
		}
		counted, err = a.of[node.Name].metric(ctx, "gshare_node_grants")
		return err == nil && len(grants) == want && int(counted) == want, nil
	})
	if err != nil {
		t.Fatalf("%s has %d grants and counts %v, want %d", node.Name, len(grants), counted, want)
	}
	return time.Since(began)
}

// metric returns the value of one of the agent's metrics without labels.
func (a *agent) metric(ctx context.Context, name string) (float64, error) {
	text, err := a.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// waitEvent blocks until a pod has an event with a reason, and returns its message.
func (a *agents) waitEvent(ctx context.Context, t *testing.T, pod, reason string) string {
	t.Helper()
	var text string
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		events, err := a.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod + ",reason=" + reason})
		if err != nil || len(events.Items) == 0 {
			return false, nil
		}
		text = events.Items[0].Message
		return true, nil
	})
	if err != nil {
		events, _ := a.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		for _, e := range events.Items {
			t.Logf("event: %s %s", e.Reason, e.Message)
		}
		t.Fatalf("no event %s on pod %s", reason, pod)
	}
	return text
}
