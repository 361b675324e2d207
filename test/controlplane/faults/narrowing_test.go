package faults

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/test/controlplane"
)

// TestCandidatesAreAllRefused has more nodes than one cycle has candidates. The packing order prefers nodes that other
// plugins refuse, for reasons that gshare's cheap check does not cover; a second cycle must place the pods on the few
// remaining nodes.
func TestCandidatesAreAllRefused(t *testing.T) {
	const count, taken = 76, 70
	l := newLab(t)
	scheduler := l.sharedScheduler()
	before := l.wideRetries(scheduler)
	l.addNodes(nodes("n", count, 1)...)
	var residents []*v1.Pod
	for i := range taken {
		name, at := fmt.Sprintf("resident-%d", i), on(fmt.Sprintf("n-%d", i))
		residents = append(residents, gpuPod(name, 50, at, hostPort(8080), labelled("app", "a")))
	}
	l.addPods(residents...)
	l.waitBound(names(residents)...)
	for name, more := range map[string]option{"port": hostPort(8080), "anti-affinity": awayFromApp} {
		began := time.Now()
		l.addPods(gpuPod(name, 50, more))
		l.waitBound(name)
		t.Logf("%s: bound after %v, on %s", name, time.Since(began).Round(time.Millisecond), l.pod(name).Spec.NodeName)
	}
	if retries := l.wideRetries(scheduler) - before; retries < 2 {
		t.Errorf("%v cycles went wide after their candidates were refused, want at least 2", retries)
	}
	l.finish()
}

// wideRetries reads from the scheduler's metrics how many cycles tried every node after all candidates were refused.
func (l *lab) wideRetries(p *controlplane.Process) (sum float64) {
	l.t.Helper()
	text, err := p.Get(l.ctx, "/metrics")
	l.must(err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "gshare_scheduler_cycles_total{") || !strings.Contains(line, `nodes="wide_retry"`) {
			continue
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		l.must(err)
		sum += value
	}
	return sum
}
