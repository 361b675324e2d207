package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// world is a cluster with a scheduler and kubelets: pods get free instances of one node, and become Ready some seconds later. It counts violations of
// what must always hold.
type world struct {
	*cluster
	mu          sync.Mutex // held by each look, and while another controller replaces the current one
	inventories map[string]kube.Inventory
	startsIn    time.Duration // time until a pod with a node is Ready
	placesIn    time.Duration // time until a pod for which there is room has a node
	neverReady  func(p *v1.Pod) bool

	known     map[types.UID]*v1.Pod
	created   map[types.UID]time.Time
	bound     map[types.UID]time.Time
	without   int // looks at which a function had no pod for requests, after it had its first one
	most      int // most pods of one function at a time
	mostMoves int // most pods at a time that are to replace others and are not Ready
}

const worldPeriod = 500 * time.Millisecond

// live runs a cluster in which a function has replicas, until the test ends.
func live(c *cluster, nodes ...*v1.Node) *world {
	c.Helper()
	w := &world{cluster: c, inventories: map[string]kube.Inventory{}, startsIn: 2 * time.Second, known: map[types.UID]*v1.Pod{}, created: map[types.UID]time.Time{}, bound: map[types.UID]time.Time{}}
	for _, n := range nodes {
		inventory, _, err := kube.InventoryOf(n)
		if err != nil {
			c.Fatal(err)
		}
		w.inventories[n.Name] = inventory
	}
	go func() {
		for {
			w.look()
			select {
			case <-time.After(worldPeriod):
			case <-c.Context().Done():
				return
			}
		}
	}()
	return w
}

// look takes the next steps of the scheduler and the kubelets, reports changes to the controller as a watch would, and updates the counts.
func (w *world) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods := w.all()
	seen := map[types.UID]bool{}
	serves, all, moving := map[string]int{}, map[string]int{}, 0
	for at := range pods {
		p := &pods[at]
		seen[p.UID] = true
		if p.Namespace == "other" {
			continue
		}
		before := w.known[p.UID]
		w.drive(p, pods)
		if before == nil {
			w.pods.handler().OnAdd(p, false)
		} else if before.ResourceVersion != p.ResourceVersion {
			w.pods.handler().OnUpdate(before, p)
		}
		w.known[p.UID] = p.DeepCopy()
		_, ready := api.Address(p)
		all[p.Labels[api.LabelFunction]]++
		if _, drained := p.Annotations[api.AnnotationDrain]; ready && !drained {
			serves[p.Labels[api.LabelFunction]]++
		}
		if movesFrom(p) != 0 && !ready {
			moving++
		}
	}
	for uid, p := range w.known {
		if !seen[uid] {
			delete(w.known, uid)
			w.pods.handler().OnDelete(p)
		}
	}
	for f, n := range all {
		w.most = max(w.most, n)
		if serves[f] == 0 && w.served(f) {
			w.without++
		}
	}
	w.mostMoves = max(w.mostMoves, moving)
}

// served reports whether a pod of a function has ever been Ready.
func (w *world) served(f string) bool {
	for uid, since := range w.bound {
		if p := w.known[uid]; p != nil && p.Labels[api.LabelFunction] == f && movesFrom(p) == 0 && time.Since(since) > w.startsIn+2*worldPeriod {
			return true
		}
	}
	return false
}

// drive places a pod, or makes it Ready.
func (w *world) drive(p *v1.Pod, all []v1.Pod) {
	since, is := w.bound[p.UID]
	_, ready := api.Address(p)
	if _, seen := w.created[p.UID]; !seen {
		w.created[p.UID] = time.Now()
	}
	switch {
	case len(p.Spec.SchedulingGates) > 0:
	case !is && time.Since(w.created[p.UID]) < w.placesIn:
	case !is && w.place(p, all):
		w.bound[p.UID] = time.Now()
	case !is && unschedulable(p) == nil:
		refuse(p)
		p.Status.Conditions[0].Message = "0/1 nodes are available"
		w.must(w.client.Status().Update(w.Context(), p))
	case is && !ready && time.Since(since) >= w.startsIn && (w.neverReady == nil || !w.neverReady(p)):
		makeReady(p)
		w.must(w.client.Status().Update(w.Context(), p))
	}
}

func (w *world) must(err error) {
	if err != nil && w.Context().Err() == nil {
		w.Error(err)
	}
}

// place gives each container of a pod an instance of a node that no other pod has, if there is one for each.
func (w *world) place(p *v1.Pod, all []v1.Pod) bool {
	request, _, err := kube.RequestOf(p)
	w.must(err)
	taken := map[string]bool{}
	for at := range all {
		placed, _, err := kube.PlacementOf(&all[at])
		w.must(err)
		for _, c := range placed.Containers {
			for _, v := range c.VGPUs {
				taken[v.Slice] = true
			}
		}
	}
	whole := share.Share{SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole}
	for node, inventory := range w.inventories {
		free := slices.DeleteFunc(slices.Clone(inventory.Slices), func(s kube.Slice) bool { return taken[s.ID] })
		placement := kube.Placement{Node: node, UID: p.UID, Model: kube.Slots}
		for _, c := range request.Containers {
			at := slices.IndexFunc(free, func(s kube.Slice) bool { return s.Profile == c.Slice })
			if at < 0 {
				break
			}
			s := whole
			s.Memory = c.Share.Memory
			placement.Containers = append(placement.Containers, kube.PlacedContainer{
				Name: c.Name, VGPUs: []kube.PlacedVGPU{{Slice: free[at].ID, Class: share.Exclusive, Priority: share.BestEffort, Share: s}},
			})
			free = slices.Delete(free, at, at+1)
		}
		if len(placement.Containers) < len(request.Containers) {
			continue
		}
		text, err := kube.EncodePlacement(placement)
		w.must(err)
		setAnnotation(&p.ObjectMeta, kube.AnnotationPlacement, text)
		p.Spec.NodeName = node
		w.must(w.client.Update(w.Context(), p))
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		w.must(w.client.Status().Update(w.Context(), p))
		return true
	}
	return false
}

// lead runs the current controller until it is stopped.
func (w *world) lead(functions ...*api.GPUFunction) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	go w.pods.Run(ctx)
	go w.cluster.known.fleet.Run(ctx)
	go w.moves.Run(ctx)
	for _, f := range functions {
		w.reconcile(f)
	}
	return func() { cancel(); synctest.Wait() }
}

// replicas returns the profiles of a function's pods by instance number.
func (w *world) replicas(function string) map[string][]string {
	found := map[string][]string{}
	for _, p := range w.all() {
		if p.Labels[api.LabelFunction] == function {
			for _, kind := range kindsOf(w.T, &p) {
				found[p.Labels[api.LabelInstance]] = append(found[p.Labels[api.LabelInstance]], kind)
			}
		}
	}
	return found
}

// told returns the events so far whose reasons begin with one of the given prefixes.
func (w *world) told(prefixes ...string) (all []string) {
	for {
		select {
		case e := <-w.recorder.Events:
			if fields := strings.Fields(e); len(fields) > 1 && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(fields[1], p) }) {
				all = append(all, e)
			}
		default:
			return all
		}
	}
}

// oneReplica returns a function with a pipeline and one replica.
func oneReplica(t *testing.T, name string) *api.GPUFunction {
	f := images(t)
	f.Name, f.UID = name, types.UID("uid-"+name)
	f.Spec.Scaling.MinReplicas, f.Spec.Scaling.MaxReplicas = 1, new(1)
	return f
}

func sleep(d time.Duration) { time.Sleep(d); synctest.Wait() }

// free deletes the pod that has an instance.
func (w *world) free(holder *v1.Pod) {
	w.Helper()
	if err := w.client.Delete(w.Context(), holder); err != nil {
		w.Fatal(err)
	}
}
