package cluster_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// upgrades rolls from one edition to the other and back, as docs/operate.md describes, while pods compute and others are created. No
// running container may end, and every share must be granted exactly once at all times.
func (i *installed) upgrades(t *testing.T) {
	before := i.load(i.ctx, t, i.Nodes[0])
	for _, step := range []struct {
		name string
		roll func(*testing.T)
		from edition
		to   edition
	}{
		{"forward", func(t *testing.T) { i.apply(t, newer) }, older, newer},
		{"back", func(t *testing.T) {
			for _, what := range programs {
				i.kubectl(t, "-n", "gshare-system", "rollout", "undo", what)
			}
		}, newer, older},
	} {
		if !t.Run(step.name, func(t *testing.T) { i.upgrade(t, before, step.roll, step.from, step.to) }) {
			return
		}
	}
	i.clear(i.ctx, t)
}

func (i *installed) upgrade(t *testing.T, before []*v1.Pod, roll func(*testing.T), from, to edition) {
	node := i.Nodes[0]
	stop := i.watchShares(t, before)
	i.arrive(i.ctx, t, node, 0, arriving/2)
	began := time.Now()
	roll(t)
	for n := arriving / 2; n < arriving; n++ { // so that pods arrive at every step of the rollout
		i.arrive(i.ctx, t, node, n, n+1)
		time.Sleep(500 * time.Millisecond)
	}
	i.rolled(t)
	took := time.Since(began)
	failed := i.settle(i.ctx, t, node, before)
	t.Logf("rolled after %v, all run after %v; the kubelet failed %d of %d pods that came; %d looks at the shares", took, time.Since(began), failed, arriving, stop())
	if from.commit == "" && failed > mostFailed { // agents of another commit may not close their nodes during the rollout
		t.Errorf("the kubelet failed %d of %d pods that came", failed, arriving)
	}
	i.says(t, to)
	for n := range arriving {
		if err := i.Client().CoreV1().Pods("default").Delete(i.ctx, arrival(n), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	i.waitGrants(i.ctx, t, node, residents)
}

// watchShares repeatedly checks the node's grants until stop is called, which returns the number of checks.
func (i *installed) watchShares(t *testing.T, pods []*v1.Pod) (stop func() int) {
	t.Helper()
	placed := map[types.UID]kube.Placement{}
	for _, pod := range pods {
		p, present, err := kube.PlacementOf(pod)
		if err != nil || !present {
			t.Fatalf("%s: placement: %v", pod.Name, err)
		}
		placed[pod.UID] = p
	}
	ctx, cancel := context.WithCancel(i.ctx)
	looks := 0
	var group sync.WaitGroup
	group.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			grants, err := i.grantsOn(i.Nodes[0])
			if err != nil {
				continue // the file was deleted after it was listed
			}
			looks++
			if wrong := doubt(grants, placed); wrong != "" {
				t.Error(wrong)
				return
			}
		}
	})
	stop = func() int {
		cancel()
		group.Wait()
		return looks
	}
	t.Cleanup(func() { stop() })
	return stop
}

// doubt describes placed pods that do not have their share exactly once, and resources that are granted twice.
func doubt(grants []grant.Grant, placed map[types.UID]kube.Placement) string {
	seen, deviceIDs, memory := map[types.UID]int{}, map[string]grant.Grant{}, map[string]share.Bytes{}
	for _, g := range grants {
		if p, watched := placed[g.UID]; watched && reflect.DeepEqual(g.VGPUs, p.Containers[0].VGPUs) {
			seen[g.UID]++
		}
		for _, deviceID := range g.DeviceIDs {
			if other, held := deviceIDs[deviceID]; held {
				return fmt.Sprintf("device ID %s is %s's and %s's", deviceID, other, g)
			}
			deviceIDs[deviceID] = g
		}
		for _, v := range g.VGPUs {
			if memory[v.Slice] += v.Share.Memory; memory[v.Slice] > 81920*share.MiB {
				return fmt.Sprintf("slice %s: more memory is granted than there is", v.Slice)
			}
		}
	}
	for uid := range placed {
		if seen[uid] != 1 {
			return fmt.Sprintf("pod %s has its share %d times", uid, seen[uid])
		}
	}
	return ""
}

// TestDoubt: doubt reports a share that is lost, changed or granted twice.
func TestDoubt(t *testing.T) {
	vgpu := func(slice string, memory share.Bytes) []kube.PlacedVGPU {
		return []kube.PlacedVGPU{{Slice: slice, Share: share.Share{Memory: memory}}}
	}
	made := func(uid, deviceID string, v []kube.PlacedVGPU) grant.Grant {
		g := grant.Grant{VGPUs: v, DeviceIDs: []string{deviceID}}
		g.UID = types.UID(uid)
		return g
	}
	placed := map[types.UID]kube.Placement{"a": {Containers: []kube.PlacedContainer{{Name: "main", VGPUs: vgpu("GPU-0", share.MiB)}}}}
	own := made("a", "g0-0", vgpu("GPU-0", share.MiB))
	for name, c := range map[string]struct {
		grants []grant.Grant
		want   string
	}{
		"as it was":     {[]grant.Grant{own, made("b", "g0-1", vgpu("GPU-0", share.MiB))}, ""},
		"lost":          {[]grant.Grant{made("b", "g0-1", vgpu("GPU-0", share.MiB))}, "0 times"},
		"doubled":       {[]grant.Grant{own, made("a", "g0-1", vgpu("GPU-0", share.MiB))}, "2 times"},
		"elsewhere":     {[]grant.Grant{made("a", "g0-0", vgpu("GPU-1", share.MiB))}, "0 times"},
		"one device ID": {[]grant.Grant{own, made("b", "g0-0", vgpu("GPU-1", share.MiB))}, "device ID g0-0"},
		"much memory":   {[]grant.Grant{own, made("b", "g0-1", vgpu("GPU-0", 81920*share.MiB))}, "more memory"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := doubt(c.grants, placed); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
