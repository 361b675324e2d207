package peers

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAsk queries three gateways, some of which fail in every possible way.
func TestAsk(t *testing.T) {
	yes := func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("yes " + r.URL.RawQuery)) }
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, test := range map[string]struct {
		answers [3]http.HandlerFunc // of b, c and d
		want    string
		takes   time.Duration
	}{
		"one knows":          {[3]http.HandlerFunc{nil, yes, nil}, "yes x=1", 0},
		"several know":       {[3]http.HandlerFunc{yes, yes, yes}, "yes x=1", 0},
		"one knows, one not": {[3]http.HandlerFunc{http.NotFound, yes, hangs}, "yes x=1", 0},
		"nobody knows":       {[3]http.HandlerFunc{nil, http.NotFound, nil}, "", 0},
		"one hangs":          {[3]http.HandlerFunc{nil, hangs, nil}, "", 200 * time.Millisecond},
		"all hang":           {[3]http.HandlerFunc{hangs, hangs, hangs}, "", 200 * time.Millisecond},
		"endless":            {[3]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("x", 2*maxAnswer))) }}, strings.Repeat("x", maxAnswer), 0},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, 4, func(_ *network, all []*Peers) {
				for i, answer := range test.answers {
					if answer != nil {
						all[i+1].Answer("/question", answer)
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				defer cancel()
				var got string
				begin := time.Now()
				all[0].Ask(ctx, "/question?x=1", func(answer []byte) bool { got = string(answer); return true })
				if took := time.Since(begin); got != test.want || took != test.takes {
					t.Errorf("%.20q after %v, want %.20q after %v", got, took, test.want, test.takes)
				}
			})
		})
	}
}

// TestAskOn: the useful response may be the last one.
func TestAskOn(t *testing.T) {
	start(t, 4, func(_ *network, all []*Peers) {
		for _, p := range all[1:] {
			p.Answer("/question", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(p.name)) })
		}
		var names []string
		all[0].Ask(context.Background(), "/question", func(answer []byte) bool { names = append(names, string(answer)); return len(names) == 3 })
		if len(names) != 3 {
			t.Errorf("answers of %v", names)
		}
	})
}

// TestAskAtOnce: of many queries, only a few are in flight, and none waits longer than its caller wants.
func TestAskAtOnce(t *testing.T) {
	start(t, 2, func(_ *network, all []*Peers) {
		var mu sync.Mutex
		now, most := 0, 0
		all[1].Answer("/question", func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			<-r.Context().Done()
			mu.Lock()
			now--
			mu.Unlock()
		})
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		ended := make(chan struct{})
		for range 100 {
			go func() {
				all[0].Ask(ctx, "/question", func([]byte) bool { return true })
				ended <- struct{}{}
			}()
		}
		begin := time.Now()
		for range 100 {
			<-ended
		}
		took := time.Since(begin)
		mu.Lock()
		if took != 200*time.Millisecond || most != maxQuestions {
			t.Errorf("%d at once, for %v", most, took)
		}
		mu.Unlock()
		synctest.Wait()
		if now != 0 {
			t.Errorf("%d are still asked", now)
		}
	})
}
