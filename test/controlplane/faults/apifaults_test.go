package faults

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// mishaps are the faults that can be injected into a bind request.
var mishaps = []struct {
	name string
	fate fate
}{
	{"500, not carried out", answer(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
	{"503, not carried out", answer(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)},
	{"409, not carried out", answer(http.StatusConflict, metav1.StatusReasonConflict)},
	{"429, not carried out", answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
	{"429 with Retry-After", busy},
	{"connection closed, not carried out", drop},
	{"connection closed, carried out", butThen(drop)},
	{"500, carried out", butThen(answer(http.StatusInternalServerError, metav1.StatusReasonInternalError))},
	{"504, carried out", butThen(answer(http.StatusGatewayTimeout, metav1.StatusReasonTimeout))},
	{"504, carried out 0.3 s later", late(after(300 * time.Millisecond))},
	{"answered after 1.5 s", func(p *proxy, b *bind) { held(after(1500*time.Millisecond)())(p, b) }},
}

// chance chooses the fate of each bind request by seed, pod and attempt, so that every run has the same faults. Two of three
// first attempts fail, and half of the second and third ones.
type chance struct {
	mu    sync.Mutex // guards count
	count map[string]int
}

const seed = 2026

func (c *chance) pick(pod string, attempt int) fate {
	r := chanceOf(fmt.Sprintf("%s/%d", pod, attempt))
	name, chosen := "passed on", fate(forward)
	if attempt == 1 && r.IntN(3) > 0 || attempt > 1 && attempt <= 3 && r.IntN(2) > 0 {
		m := mishaps[r.IntN(len(mishaps))]
		name, chosen = m.name, m.fate
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[name]++
	return chosen
}

// chanceOf returns a random generator that yields the same sequence for the same name.
func chanceOf(name string) *rand.Rand {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

// faultyCluster returns nodes and 146 pods that fill them exactly, in whatever order they are placed: all pods for one GPU
// model have the same size, and pods with two vGPUs go to nodes with two GPUs.
func faultyCluster() ([]*v1.Node, []*v1.Pod) {
	machines := append(nodes("a", 8, 4), nodes("b", 4, 2, ofModel("B200"))...)
	machines = append(machines, nodes("h", 7, 2, ofModel("H200"))...)
	pods := gpuPods("quarter", 8*4*4, 25, annotated(kube.AnnotationModel, gpuModel))
	pods = append(pods, gpuPods("pair", 4, 200, gshare("vgpu", "2"), annotated(kube.AnnotationModel, "B200"))...)
	return machines, append(pods, gpuPods("whole", 7*2, 100, annotated(kube.AnnotationModel, "H200"))...)
}

func TestBindRequestsGoWrong(t *testing.T) {
	l := newLab(t)
	c := &chance{count: map[string]int{}}
	var p *proxy
	p = l.startProxy(func(pod string, attempt int) fate {
		if p.underWay(pod) { // a server that responds truthfully, while an earlier request is still in flight
			return forward
		}
		return c.pick(pod, attempt)
	})
	p.readFails = func(pod string, attempt int) bool {
		return chanceOf(fmt.Sprintf("read %s/%d", pod, attempt)).IntN(3) == 0
	}
	machines, pods := faultyCluster()
	l.addNodes(machines...)
	l.ownScheduler("faulty", controlplane.SchedulerOptions{Server: p.url})
	began := time.Now()
	l.addPods(pods...)
	l.waitBound(names(pods)...)
	t.Logf("%d pods were bound after %v", len(pods), time.Since(began))
	p.late.Wait()
	for _, pod := range pods { // the watch may be faster than the answer to the request
		l.must(wait.PollUntilContextCancel(l.ctx, pollInterval, true, func(context.Context) (bool, error) { return p.carriedOut(pod.Name) > 0, nil }))
	}
	for what, count := range c.count {
		t.Logf("%4d bind requests: %s", count, what)
	}
	for _, m := range mishaps {
		if c.count[m.name] == 0 {
			t.Errorf("no bind request: %s", m.name)
		}
	}
	for _, pod := range pods {
		if got := p.carriedOut(pod.Name); got != 1 {
			t.Errorf("pod %s was bound %d times", pod.Name, got)
		}
		if seen := l.board.placesOf(l.pod(pod.Name).UID); len(seen) != 1 || seen[0].placement == "" {
			t.Errorf("pod %s was seen at %v", pod.Name, seen)
		}
	}
	l.wantFull()
}

func (p *proxy) underWay(pod string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending[pod] > 0
}

func (p *proxy) carriedOut(pod string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bound[pod]
}
