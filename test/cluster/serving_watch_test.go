package cluster_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// watchPeriod is the interval at which pods are observed, and so the resolution of all observed times.
const watchPeriod = 200 * time.Millisecond

// watched is what was observed of a function's pods.
type watched struct {
	known    map[types.UID]*watchedPod
	reserved float64 // SM-time that the scheduler counts for the pods, in seconds of whole GPUs
	cold     int     // number of pods created
	starts   []time.Duration
	ends     []time.Duration // from the start of a pod's deletion until it is gone
	hot      []replicaChange
}

type watchedPod struct {
	seen, ready, ending time.Time
	known               bool // existed before the observation began
}

// replicaChange is a change of the function's number of replicas: pods that are not being deleted and are wanted Hot.
type replicaChange struct {
	at time.Duration
	n  int
}

// sequence returns the successive numbers of replicas.
func (w *watched) sequence() string {
	var all []string
	for _, h := range w.hot {
		all = append(all, fmt.Sprint(h.n))
	}
	return strings.Join(all, "-")
}

func (w *watched) times() string {
	var all []string
	for _, h := range w.hot {
		all = append(all, fmt.Sprintf("%.0f s: %d", h.at.Seconds(), h.n))
	}
	return strings.Join(all, ", ")
}

// watch observes the pods of functions until stop is called, which returns what was observed, by function.
func (s *served) watch(t *testing.T, functions ...string) (stop func() map[string]*watched) {
	t.Helper()
	all := map[string]*watched{}
	for _, name := range functions {
		all[name] = &watched{known: map[types.UID]*watchedPod{}}
	}
	began, done := time.Now(), make(chan struct{})
	last := began
	look := func(first bool) error {
		list := &v1.PodList{}
		if err := s.objects.List(s.ctx, list, client.InNamespace("default"), client.HasLabels{api.LabelFunction}); err != nil {
			return err
		}
		now := time.Now()
		passed := now.Sub(last)
		last = now
		for _, name := range functions {
			for _, pod := range all[name].look(list.Items, name, now, now.Sub(began), passed, first) {
				if err := setClasses(pidsOf(t, pod), unix.SCHED_RR); err != nil { // as play does for the pods that existed before
					return err
				}
			}
		}
		return nil
	}
	if err := look(true); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		ticker := time.NewTicker(watchPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if err := look(false); err != nil {
					t.Errorf("list pods: %v", err)
				}
			case <-done:
				return
			}
		}
	})
	return func() map[string]*watched {
		close(done)
		wait.Wait()
		return all
	}
}

// look records the state of a function's pods, and what they have reserved since the last call. It returns the pods that have become
// ready.
func (w *watched) look(pods []v1.Pod, function string, now time.Time, at, passed time.Duration, first bool) (ready []*v1.Pod) {
	hot, there := 0, map[types.UID]bool{}
	for n := range pods {
		pod := &pods[n]
		if pod.Labels[api.LabelFunction] != function {
			continue
		}
		there[pod.UID] = true
		p := w.known[pod.UID]
		if p == nil {
			p = &watchedPod{seen: now, known: first}
			w.known[pod.UID] = p
			if !first {
				w.cold++
			}
		}
		if _, isReady := api.Address(pod); isReady && p.ready.IsZero() {
			ready = append(ready, pod)
			if p.ready = now; !p.known {
				w.starts = append(w.starts, now.Sub(p.seen))
			}
		}
		if pod.DeletionTimestamp != nil && p.ending.IsZero() {
			p.ending = now
		}
		if wanted, _, _ := kube.ResidencyOf(pod); pod.DeletionTimestamp == nil && wanted.Level == residency.Hot {
			hot++
		}
		w.reserved += passed.Seconds() * reserved(pod)
	}
	for uid, p := range w.known {
		if !there[uid] {
			delete(w.known, uid)
			if !p.ending.IsZero() {
				w.ends = append(w.ends, now.Sub(p.ending))
			}
		}
	}
	if len(w.hot) == 0 || w.hot[len(w.hot)-1].n != hot {
		w.hot = append(w.hot, replicaChange{at, hot})
	}
	return ready
}

// reserved returns the fraction of a GPU's SM-time that a pod holds, as the scheduler counts it.
func reserved(pod *v1.Pod) (part float64) {
	placement, present, err := kube.PlacementOf(pod)
	if err != nil || !present || kube.Ended(pod) {
		return 0
	}
	o := nodeview.Occupant{Level: kube.LevelOf(pod)}
	for _, c := range placement.Containers {
		for _, v := range c.VGPUs {
			part += float64(o.Charge(v).RequestArea()) / float64(share.WholeArea)
		}
	}
	return part
}
