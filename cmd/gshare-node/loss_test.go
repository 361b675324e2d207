package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lossRequests is how many requests each part of TestLost sends, and lossEnds how often a server ends meanwhile, if it can start as often.
const (
	lossRequests = 100_000
	lossEnds     = 20
	lossStep     = lossRequests / (lossEnds + 1) // from one end to the next
)

// quick is a function whose two replicas answer as fast as a machine's processors let them.
func quick() served {
	f := resnet50("minReplicas: 2, maxReplicas: 2, concurrency: 4")
	f.batches = "--batch, 1=1ms, --batch, 8=2ms"
	return f
}

// TestLost ends servers under load, and counts what clients get. Of the requests that gshare serve has accepted it loses none at its own SIGTERM, and none
// at that of a replica; at the SIGKILL of a replica at most one of 1,000 is lost. TestServe is the short version.
func TestLost(t *testing.T) {
	if !*full {
		t.Skip("100,000 requests take minutes: they are sent with -full")
	}
	t.Run("SIGTERM of gshare serve", func(t *testing.T) {
		b := newBench(t)
		b.start(t)
		var sent uint64
		for range lossEnds {
			s := b.serve(t, quick())
			s.mustAnswer(t)
			sent += s.stopUnderLoad(t, 1, lossRequests/lossEnds)
			eventually(t, "its shares are back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
		}
		t.Logf("%d requests were accepted and answered, while gshare serve got SIGTERM %d times", sent, lossEnds)
	})
	for signal, allowed := range map[syscall.Signal]uint64{syscall.SIGTERM: 0, syscall.SIGKILL: lossRequests / 1000} {
		t.Run(map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGKILL: "SIGKILL"}[signal]+" of replicas", func(t *testing.T) {
			b := newBench(t)
			b.start(t)
			s := b.serve(t, quick())
			s.mustAnswer(t)
			got, ended := s.endReplicas(t, b, signal)
			t.Logf("%d requests: %d answered, %d refused, %d broken off, while replicas got the signal %d times", lossRequests,
				got.answered.Load(), got.refused.Load(), got.broken.Load(), ended)
			if lost := got.refused.Load() + got.broken.Load(); lost > allowed || got.answered.Load()+lost != lossRequests || ended < 5 {
				t.Errorf("%d requests were lost: want at most %d; %s", lost, allowed, s.text())
			}
		})
	}
}

// tally is what clients got.
type tally struct {
	answered, refused, broken atomic.Uint64
	mu                        sync.Mutex
	first                     string // of the answers that were wrong
}

func (c *tally) note(status int, body string, err error) {
	switch {
	case err == nil && status == 200 && strings.Contains(body, quick().checksum()):
		c.answered.Add(1)
		return
	case err == nil:
		c.refused.Add(1)
	default:
		c.broken.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == "" {
		c.first = fmt.Sprintf("status %d, %q, %v", status, body, err)
	}
}

// endReplicas sends requests without pause, and meanwhile a signal to a replica, if both are ready and the end of the last one was noticed. It returns what
// the clients got, and how often it sent the signal.
func (s *serving) endReplicas(t *testing.T, b *bench, signal syscall.Signal) (got *tally, ended int) {
	t.Helper()
	got = &tally{}
	connections := &http.Transport{MaxIdleConnsPerHost: 32}
	defer connections.CloseIdleConnections()
	var sent atomic.Uint64
	var clients sync.WaitGroup
	for range 32 {
		clients.Go(func() {
			for sent.Add(1) <= lossRequests {
				got.note(s.askOver(connections, "resnet50", ""))
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); clients.Wait() }()
	for next, ticker := uint64(lossStep), time.NewTicker(50*time.Millisecond); ; {
		select {
		case <-done:
			if got.first != "" {
				t.Logf("the first one: %s", got.first)
			}
			return got, ended
		case <-ticker.C:
		}
		if sent.Load() < next {
			continue
		}
		text := s.metrics(t)
		if !strings.Contains(text, `gshare_fleet_replicas{function="resnet50",namespace="default",phase="ready"} 2`) ||
			!strings.Contains(text, fmt.Sprintf("gshare_fleet_failures_total{function=\"resnet50\",namespace=\"default\"} %d\n", ended)) {
			continue
		}
		runs := b.mustStatus(t).Runs
		if len(runs) != 2 {
			continue
		}
		if err := syscall.Kill(runs[ended%2].PID, signal); err != nil {
			t.Fatal(err)
		}
		ended++
		next = sent.Load() + lossStep
	}
}
