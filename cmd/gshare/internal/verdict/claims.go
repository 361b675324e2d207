package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// ByClaims reports whether resource claims are the only way in which a pod can get shares.
func ByClaims(pod *v1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 && !kube.RequestsShare(pod) }

// ExplainClaims returns the explanation for a pod with resource claims. If none of the claims is for gshare, it returns what Explain does.
func ExplainClaims(s *cluster.Snapshot, pod *v1.Pod, c *cluster.Claims) *Report {
	r := &Report{Pod: pod.Namespace + "/" + pod.Name, Scheduler: pod.Spec.SchedulerName, Said: statusMessages(pod), Notes: s.Notes}
	var waiting, allocated []podClaim
	for _, p := range claimsOf(pod, c) {
		switch {
		case p.claim == nil:
			r.set(NoClaim, p.absence(), "")
			return r
		case !isOurs(p.claim):
		case p.claim.Status.Allocation == nil:
			waiting = append(waiting, p)
		default:
			allocated = append(allocated, p)
		}
	}
	switch {
	case len(waiting)+len(allocated) == 0:
		return Explain(s, pod)
	case kube.Ended(pod):
		r.set(Ended, "the pod has ended: "+string(pod.Status.Phase), "")
	case len(waiting) > 0:
		r.explainWaiting(waiting, c)
	case pod.Spec.NodeName == "":
		r.set(NoNode, "the pod's resource claims are allocated, and it is not bound: something else keeps it off the node of its devices", "read the scheduler's messages")
	default:
		r.set(Placed, fmt.Sprintf("the pod has its shares on node %s, by resource claims", pod.Spec.NodeName), "")
		r.addClaimPlaces(pod, allocated, c)
		r.addStatus(pod)
	}
	return r
}

// podClaim is an entry of a pod's resourceClaims, with the claim if there is one.
type podClaim struct {
	v1.PodResourceClaim
	claim *resourceapi.ResourceClaim
}

func claimsOf(pod *v1.Pod, c *cluster.Claims) (list []podClaim) {
	for _, entry := range pod.Spec.ResourceClaims {
		name := entry.ResourceClaimName
		for _, made := range pod.Status.ResourceClaimStatuses {
			if made.Name == entry.Name {
				name = made.ResourceClaimName // nil if the pod needs no claim
			}
		}
		p := podClaim{PodResourceClaim: entry}
		if name != nil {
			p.claim = c.Find(pod.Namespace, *name)
		}
		list = append(list, p)
	}
	return list
}

// absence says why the claim of an entry does not exist.
func (p podClaim) absence() string {
	if p.ResourceClaimTemplateName != nil {
		return fmt.Sprintf("the claim %s of the pod is not there yet: Kubernetes makes it from the ResourceClaimTemplate %s, if that exists", p.Name, *p.ResourceClaimTemplateName)
	}
	return fmt.Sprintf("the ResourceClaim of the pod's entry %s does not exist", p.Name)
}

// isOurs reports whether a claim is for devices of gshare's driver: according to its allocation or, before there is one, to its device class.
func isOurs(claim *resourceapi.ResourceClaim) bool {
	if a := claim.Status.Allocation; a != nil {
		return slices.ContainsFunc(a.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver == cluster.ClaimDriver })
	}
	return slices.ContainsFunc(wishesOf(claim), func(w wish) bool { return w.class == cluster.ClaimDriver })
}

// wish is one request of a claim, or one of the alternatives of a request.
type wish struct {
	name, class string
	capacity    *resourceapi.CapacityRequirements
}

func wishesOf(claim *resourceapi.ResourceClaim) (list []wish) {
	for _, r := range claim.Spec.Devices.Requests {
		if r.Exactly != nil {
			list = append(list, wish{r.Name, r.Exactly.DeviceClassName, r.Exactly.Capacity})
		}
		for _, sub := range r.FirstAvailable {
			list = append(list, wish{r.Name + "/" + sub.Name, sub.DeviceClassName, sub.Capacity})
		}
	}
	return list
}

// explainWaiting fills in the report for a pod with unallocated claims: what each device has left, and which of the claims' requests that does
// not satisfy.
func (r *Report) explainWaiting(waiting []podClaim, c *cluster.Claims) {
	var names []string
	var wishes []wish
	for _, p := range waiting {
		names = append(names, p.claim.Name)
		wishes = append(wishes, wishesOf(p.claim)...)
	}
	for _, w := range wishes {
		r.Asks = append(r.Asks, w.text())
	}
	r.set(ClaimWaits, "not allocated: "+strings.Join(names, ", "), "request what a device has left, or end a pod that holds it; selectors of claims are not evaluated here")
	if len(c.Devices) == 0 {
		r.set(ClaimWaits, "no node offers a device to resource claims", "set kubernetes.resourceClaims in the agents' configuration: docs/claims.md")
		return
	}
	nodes, taken := map[string]*Node{}, allocatedDevices(c)
	for i := range c.Devices {
		d := &c.Devices[i]
		n := nodes[d.Node]
		if n == nil {
			n = &Node{Name: d.Node, Obstacles: []Obstacle{{Reason: "no device for the claim"}}}
			nodes[d.Node] = n
		}
		n.Slices = append(n.Slices, deviceReport(d, wishes, c, taken))
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		r.Nodes = append(r.Nodes, *nodes[name])
	}
}

func (w wish) text() string {
	if w.capacity == nil {
		return w.name + ": a whole device of class " + w.class
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(w.capacity.Requests)) {
		amount := w.capacity.Requests[name]
		parts = append(parts, fmt.Sprintf("%s %s", name, amount.String()))
	}
	return w.name + ": " + strings.Join(parts, ", ") + " of a device of class " + w.class
}

// allocatedDevices returns the devices of which at least a part is allocated to a claim.
func allocatedDevices(c *cluster.Claims) (taken []*cluster.ClaimDevice) {
	for i := range c.Devices {
		if d := &c.Devices[i]; len(c.On(d)) > 0 {
			taken = append(taken, d)
		}
	}
	return taken
}

// excludes reports whether two devices are MIG instances that cannot exist at the same time, because both consume the same memory slice of a
// GPU.
func excludes(a, b *cluster.ClaimDevice) bool {
	if a == b || a.Node != b.Node {
		return false
	}
	for _, mine := range a.ConsumesCounters {
		for _, other := range b.ConsumesCounters {
			for counter := range mine.Counters {
				if _, both := other.Counters[counter]; both && mine.CounterSet == other.CounterSet {
					return true
				}
			}
		}
	}
	return false
}

// deviceReport reports what is left of a device, and where that is too little for the wishes. taken are the devices of which a part is
// allocated.
func deviceReport(d *cluster.ClaimDevice, wishes []wish, c *cluster.Claims, taken []*cluster.ClaimDevice) Slice {
	out := Slice{ID: d.Name, Model: textOf(d, "model")}
	for _, t := range d.Taints {
		out.Closed = strings.TrimPrefix(t.Key, cluster.ClaimDriver+"/")
	}
	free := freeOf(d, c)
	for _, w := range wishes {
		for _, name := range slices.Sorted(maps.Keys(free)) {
			if left, wanted := free[name], w.of(d, name); left.Cmp(wanted) < 0 {
				out.Says = append(out.Says, fmt.Sprintf("%s: %s %s, and %s is left", w.name, wanted.String(), name, left.String()))
			}
		}
	}
	for _, o := range taken {
		if excludes(d, o) {
			out.Says = append(out.Says, "cannot be made beside "+o.Name+", which is allocated")
		}
	}
	if len(out.Says) == 0 {
		var left []string
		for _, name := range slices.Sorted(maps.Keys(free)) {
			amount := free[name]
			left = append(left, fmt.Sprintf("%s %s", amount.String(), name))
		}
		out.Says = []string{"left: " + strings.Join(left, ", ")}
	}
	for _, h := range c.On(d) {
		out.Holders = append(out.Holders, h.Name())
	}
	return out
}

// of returns how much of a device's capacity with this name the wish asks for, before the driver rounds it up.
func (w wish) of(d *cluster.ClaimDevice, name resourceapi.QualifiedName) resource.Quantity {
	if w.capacity != nil {
		if amount, ok := w.capacity.Requests[name]; ok {
			return amount
		}
	}
	if p := d.Capacity[name].RequestPolicy; p != nil && p.Default != nil {
		return *p.Default
	}
	return d.Capacity[name].Value
}

// freeOf returns how much of each capacity of a device is not allocated to claims.
func freeOf(d *cluster.ClaimDevice, c *cluster.Claims) map[resourceapi.QualifiedName]resource.Quantity {
	free := map[resourceapi.QualifiedName]resource.Quantity{}
	holders := c.On(d)
	for name, capacity := range d.Capacity {
		left := capacity.Value.DeepCopy()
		for _, h := range holders {
			left.Sub(h.Result.ConsumedCapacity[name])
		}
		free[name] = left
	}
	return free
}

// addClaimPlaces adds the devices of a pod's claims, with the pods beside it.
func (r *Report) addClaimPlaces(pod *v1.Pod, allocated []podClaim, c *cluster.Claims) {
	for _, p := range allocated {
		results := p.claim.Status.Allocation.Devices.Results
		for i := range results {
			result := &results[i]
			if result.Driver != cluster.ClaimDriver {
				continue
			}
			place := Place{Container: userOf(pod, p.Name), VGPU: i, Node: result.Pool, Slice: result.Device, Share: consumedText(result)}
			d := c.Device(result)
			if place.Missing = d == nil; d != nil {
				place.Slice, place.Model, place.Class = cmp.Or(textOf(d, "uuid"), d.Name), textOf(d, "model"), textOf(d, "isolation")
				for _, h := range c.On(d) {
					if h.Claim != p.claim {
						place.Beside = append(place.Beside, Neighbor{h.Name(), consumedText(h.Result)})
					}
				}
			}
			r.Places = append(r.Places, place)
		}
	}
}

func consumedText(r *resourceapi.DeviceRequestAllocationResult) string {
	sm, memory := r.ConsumedCapacity["sm"], r.ConsumedCapacity["memory"]
	return fmt.Sprintf("%s%% SM, 100%% time, %d MiB", sm.String(), memory.Value()/int64(share.MiB))
}

// userOf returns the name of the container that uses an entry of the pod's resourceClaims.
func userOf(pod *v1.Pod, claim string) string {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if slices.ContainsFunc(containers[i].Resources.Claims, func(u v1.ResourceClaim) bool { return u.Name == claim }) {
				return containers[i].Name
			}
		}
	}
	return ""
}

func textOf(d *cluster.ClaimDevice, attribute resourceapi.QualifiedName) string {
	if v := d.Attributes[attribute].StringValue; v != nil {
		return *v
	}
	return ""
}
