package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
)

// usersNamed is how many users of a slice are named.
const usersNamed = 3

// users says of the slices that are used without a share by whom: processes that were seen there, and what other plugins have
// given away. Places that overlap with a used one cannot be had either.
func (g *guard) users() map[string]string {
	g.mu.Lock()
	inv := g.inventory
	g.mu.Unlock()
	by := map[string][]string{}
	for slice, pods := range g.rule.Used() {
		for _, uid := range pods {
			by[slice] = append(by[slice], g.nameOf(uid))
		}
	}
	for _, l := range g.lent {
		for _, slice := range inv.Lent(l.Resource, l.Device) {
			by[slice] = append(by[slice], fmt.Sprintf("pod %s/%s (%s)", l.Namespace, l.Pod, l.Resource))
		}
	}
	used := map[string]string{}
	for slice, names := range by {
		used[slice] = list(names)
	}
	return inv.Blocked(used)
}

// nameOf names a pod for people.
func (g *guard) nameOf(uid string) string {
	if uid == "" {
		return "processes outside of pods"
	}
	if pod, _ := find(g.pods, cgroup.Container{PodUID: uid}); pod != nil {
		return "pod " + pod.Namespace + "/" + pod.Name
	}
	return "a pod with UID " + uid
}

func list(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if n := len(names) - usersNamed; n > 0 {
		names, more = names[:usersNamed], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}

// setUsed notes which slices others use: they are offered to nobody, and given to nobody new, until they are free.
func (a *Agent) setUsed(used map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if maps.Equal(a.used, used) {
		return
	}
	a.Log.Warn("who uses slices without a share", "before", a.used, "now", used)
	a.used = used
	a.setInventory(a.inventory)
	signal(a.report)
}

// setInventory makes an inventory the one that is offered and admitted by. The caller holds the lock.
func (a *Agent) setInventory(inv inventory.Inventory) {
	a.inventory = inv.Mark(a.used)
	a.book.SetSlices(a.inventory.Packing(), a.used)
}
