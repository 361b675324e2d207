package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// network carries pings between gateways without delay.
type network struct {
	mu      sync.Mutex
	serving map[string]http.Handler // by address
	silent  map[string]bool         // accept pings but never respond
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	handler, silent := n.serving[r.URL.Host], n.silent[r.URL.Host]
	n.mu.Unlock()
	switch {
	case silent:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case handler == nil:
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// start runs a test with gateways a, b, ... that know each other.
func start(t *testing.T, count int, test func(n *network, all []*Peers)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{serving: map[string]http.Handler{}, silent: map[string]bool{}}
		addresses := map[string]string{}
		var all []*Peers
		for i := range count {
			name := string(rune('a' + i))
			p := New(name, n, slog.New(slog.DiscardHandler))
			n.serving[name+":1"] = p
			addresses[name] = name + ":1"
			all = append(all, p)
		}
		for _, p := range all {
			p.Set(addresses)
			go p.Run(t.Context())
		}
		time.Sleep(Period)
		synctest.Wait()
		test(n, all)
	})
}

func names(p *Peers) string { return strings.Join(p.View().names, "") }

// TestSilence makes a gateway stop responding and then respond again, in every possible way.
func TestSilence(t *testing.T) {
	for name, fail := range map[string]func(*network){
		"killed":          func(n *network) { delete(n.serving, "b:1") },
		"hung":            func(n *network) { n.silent["b:1"] = true },
		"another program": func(n *network) { n.serving["b:1"] = http.NotFoundHandler() },
		"another gateway": func(n *network) { n.serving["b:1"] = n.serving["c:1"] },
	} {
		t.Run(name, func(t *testing.T) {
			start(t, 3, func(n *network, all []*Peers) {
				a, b := all[0], n.serving["b:1"]
				old := a.View().Peer("b")
				if names(a) != "abc" || old == nil || old.Address != "b:1" {
					t.Fatalf("a sees %q", names(a))
				}
				n.set(func() { fail(n) })
				time.Sleep(Silence - Period - time.Millisecond)
				if synctest.Wait(); names(a) != "abc" || old.Serving.Err() != nil {
					t.Errorf("a sees %q too early", names(a))
				}
				time.Sleep(2*Period + 2*time.Millisecond)
				if synctest.Wait(); names(a) != "ac" || a.View().Peer("b") != nil || old.Serving.Err() == nil {
					t.Errorf("a sees %q after %v of silence", names(a), Silence+Period)
				}
				n.set(func() { n.serving["b:1"], n.silent["b:1"] = b, false })
				time.Sleep(Silence + Period)
				if synctest.Wait(); names(a) != "abc" || a.View().Peer("b").Serving.Err() != nil {
					t.Errorf("a sees %q when b answers again", names(a))
				}
			})
		})
	}
}

// TestLeave checks that a gateway owns nothing as soon as it leaves, and that its pending requests are not given up, also when it no longer answers
// pings, until its pod has ended.
func TestLeave(t *testing.T) {
	start(t, 2, func(n *network, all []*Peers) {
		b := all[0].View().Peer("b")
		all[1].Leave()
		if names(all[1]) != "a" || !all[1].View().Leaving {
			t.Errorf("b sees %q", names(all[1]))
		}
		time.Sleep(Period)
		if synctest.Wait(); names(all[0]) != "a" || b.Serving.Err() != nil {
			t.Errorf("a sees %q, b has ended: %v", names(all[0]), b.Serving.Err())
		}
		n.set(func() { delete(n.serving, "b:1") }) // its port is closed before the last requests are answered
		time.Sleep(time.Minute)
		if synctest.Wait(); names(all[0]) != "a" || b.Serving.Err() != nil {
			t.Errorf("a sees %q, b has ended: %v", names(all[0]), b.Serving.Err())
		}
		all[0].Set(map[string]string{"a": "a:1"})
		if b.Serving.Err() == nil {
			t.Error("a still waits for b, whose pod has ended")
		}
		all[0].Leave()
		if names(all[0]) != "" {
			t.Errorf("a sees %q", names(all[0]))
		}
	})
}

// TestSet checks that a gateway is given up at once when its pod is deleted, and that one with a new address is pinged there.
func TestSet(t *testing.T) {
	start(t, 3, func(n *network, all []*Peers) {
		a := all[0]
		b, c := a.View().Peer("b"), a.View().Peer("c")
		n.set(func() { n.serving["b:2"] = n.serving["b:1"] })
		a.Set(map[string]string{"a": "a:1", "b": "b:2"})
		if names(a) != "a" || b.Serving.Err() == nil || c.Serving.Err() == nil {
			t.Errorf("a sees %q", names(a))
		}
		time.Sleep(Period)
		if synctest.Wait(); names(a) != "ab" || a.View().Peer("b").Address != "b:2" {
			t.Errorf("a sees %q", names(a))
		}
	})
}

// TestCount checks that the first owner of a function decides for all gateways how many owners it has, and that the next owner
// keeps the number.
func TestCount(t *testing.T) {
	start(t, 3, func(n *network, all []*Peers) {
		const f = "default/resnet"
		ranked := all[0].View().Rank(f)
		of := map[string]*Peers{"a": all[0], "b": all[1], "c": all[2]}
		counts := func(of map[string]*Peers) string {
			time.Sleep(2 * Period)
			synctest.Wait()
			var text []string
			for _, name := range slices.Sorted(maps.Keys(of)) {
				text = append(text, fmt.Sprint(of[name].View().Count(f)))
			}
			return strings.Join(text, " ")
		}
		of[ranked[1]].SetCount(f, 3)
		if got := counts(of); got != "1 1 1" {
			t.Errorf("owners %s after another one has decided", got)
		}
		of[ranked[0]].SetCount(f, 2)
		if got := counts(of); got != "2 2 2" {
			t.Errorf("owners %s, want two everywhere", got)
		}
		n.set(func() { delete(n.serving, ranked[0]+":1") })
		delete(of, ranked[0])
		if time.Sleep(Silence); counts(of) != "2 2" {
			t.Errorf("owners %s after the first has gone", counts(of))
		}
		of[ranked[1]].SetCount(f, 1)
		if got := counts(of); got != "1 1" {
			t.Errorf("owners %s, want one again", got)
		}
	})
}

// TestBadAnswers checks responses that no gateway would give.
func TestBadAnswers(t *testing.T) {
	for name, body := range map[string]string{"none": "", "text": "ok", "no name": "{}", "endless": `{"gateway":"` + strings.Repeat("b", maxState)} {
		t.Run(name, func(t *testing.T) {
			n := &network{serving: map[string]http.Handler{"b:1": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) })}}
			p := New("a", n, slog.New(slog.DiscardHandler))
			if _, err := p.ask(context.Background(), &other{name: "b", address: "b:1"}); err == nil {
				t.Error("no error")
			}
		})
	}
}
