package controller

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refuse marks a pod as unschedulable, as the scheduler does.
func refuse(p *v1.Pod) {
	p.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: metav1.Now(),
	}}
}

// ignoreEvents discards the events about pods.
func (c *cluster) ignoreEvents() {
	go func() {
		for {
			select {
			case <-c.pods.Events():
			case <-c.Context().Done():
				return
			}
		}
	}()
}

// TestRecut: a pod that the scheduler has not placed within 2 s is replaced by one with the next cut. Once all cuts were tried, it keeps waiting.
func TestRecut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, instanceNode(t, "a", "3g.40gb", "1g.10gb", "1g.10gb"))
		c.run(false)
		c.pods.Create(instanceOfFunction(images(t), 1))
		c.event()
		first := c.replica()
		if kinds := kindsOf(t, first); !maps.Equal(kinds, map[string]string{"server": "3g.40gb"}) {
			t.Fatalf("the first cut is %v", kinds)
		}
		c.ignoreEvents()
		c.update(first, func(p *v1.Pod) { refuse(p); p.Status.NominatedNodeName = "a" })
		time.Sleep(10 * time.Second)
		if p := c.replica(); p.UID != first.UID {
			t.Error("the cut was given up although pods are preempted for it")
		}
		first = c.replica()
		c.update(first, func(p *v1.Pod) { refuse(p); p.Status.NominatedNodeName = "" })
		time.Sleep(1500 * time.Millisecond)
		if p := c.replica(); p.UID != first.UID {
			t.Error("the cut was given up before 2 s")
		}
		time.Sleep(time.Second)
		second := c.replica()
		if kinds := kindsOf(t, second); second.UID == first.UID || len(kinds) != 2 {
			t.Fatalf("after 2.5 s: pod %s, cut %v", second.UID, kinds)
		}
		c.update(second, refuse)
		time.Sleep(4 * time.Second)
		if p := c.replica(); p.UID != second.UID {
			t.Errorf("all were tried, and there is pod %s", p.UID)
		}
		time.Sleep(triedAgain)
		if p := c.replica(); p.UID == second.UID || len(kindsOf(t, p)) != 1 {
			t.Error("the first cut is not tried again")
		}
	})
}

// TestRecutMakesNoRoom: no other replica is ended for a pod that may soon be replaced by one with another cut. Each pod waits longer than the one
// before.
func TestRecutMakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, instanceNode(t, "a", "2g.20gb"), instanceNode(t, "b", "1g.10gb", "1g.10gb"), instanceNode(t, "c", "3g.40gb"))
		c.run(false)
		c.ignoreEvents()
		r := &room{client: slimmed(c.client), live: c.client, fleet: c.known.fleet, pods: c.pods, log: c.pods.log, looked: map[types.UID]time.Time{}, given: map[types.UID]given{}}
		waits := func(p *v1.Pod) bool {
			t.Helper()
			next, _, err := r.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return next != nil && next.UID == p.UID
		}
		c.pods.Create(instanceOfFunction(images(t), 1))
		for at, want := range []map[string]string{{"server": "2g.20gb"}, {"server": "1g.10gb", "gshare-stage-1": "1g.10gb"}, {"server": "3g.40gb"}} {
			p := c.replica()
			if kinds := kindsOf(t, p); !maps.Equal(kinds, want) {
				t.Fatalf("cut %d is %v, want %v", at, kinds, want)
			}
			c.update(p, refuse)
			time.Sleep(roomPause<<at - time.Second)
			if now := c.replica(); now.UID != p.UID {
				t.Fatalf("cut %d was given up early", at)
			}
			if last := at == 2; waits(p) != last {
				t.Errorf("cut %d: room is made for it: %v", at, !last)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// TestRecutBound: a pod that is bound just before it would be given up stays.
func TestRecutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, instanceNode(t, "a", "3g.40gb", "1g.10gb", "1g.10gb"))
		tried := 0
		c.calls.Delete = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			bound := &v1.Pod{}
			if err := w.Get(ctx, client.ObjectKeyFromObject(o), bound); err != nil {
				return err
			}
			bound.Spec.NodeName = "a"
			tried++
			if err := w.Update(ctx, bound); err != nil {
				return err
			}
			return w.Delete(ctx, o, options...)
		}
		c.run(false)
		c.ignoreEvents()
		c.pods.Create(instanceOfFunction(images(t), 1))
		p := c.replica()
		c.update(p, refuse)
		time.Sleep(10 * time.Second)
		if now := c.replica(); tried != 1 || now.UID != p.UID || now.Spec.NodeName != "a" {
			t.Errorf("%d attempts; pod %s on %q, want %s", tried, now.UID, now.Spec.NodeName, p.UID)
		}
	})
}

// TestRecutAdopted: a new leader does not give up a pod with the only possible cut.
func TestRecutAdopted(t *testing.T) {
	for name, profiles := range map[string][]string{"whole": {"3g.40gb"}, "in stages": {"1g.10gb", "1g.10gb"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, instanceNode(t, "a", profiles...))
				c.run(false)
				c.ignoreEvents()
				i := instanceOfFunction(images(t), 1)
				c.pods.Create(i)
				p := c.replica()
				c.pods.Adopt(i, p)
				c.pods.Report(i.Name)
				c.update(p, refuse)
				time.Sleep(triedAgain / 2)
				if now := c.replica(); now.UID != p.UID {
					t.Errorf("the pod was replaced by one that is cut as %v", kindsOf(t, now))
				}
			})
		})
	}
}
