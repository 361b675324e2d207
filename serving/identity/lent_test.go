package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"
)

// member is a gateway with an API server of its own, so that one alone may be cut off.
type member struct {
	reviewer
	tokens *Tokens
	asked  int // others, by it
}

// newMembers returns gateways that ask each other.
func newMembers(count int) []*member {
	all := make([]*member, count)
	for i := range all {
		all[i] = &member{}
		all[i].tokens = NewTokens(AudienceFunctions, all[i].review)
	}
	for _, m := range all {
		m.tokens.AskOthers(func(_ context.Context, path string, use func([]byte) bool) {
			m.mu.Lock()
			m.asked++
			m.mu.Unlock()
			for _, o := range all {
				if o == m {
					continue
				}
				w := httptest.NewRecorder()
				if o.tokens.ServeOthers(w, httptest.NewRequest(http.MethodGet, path, nil)); w.Code == http.StatusOK && use(w.Body.Bytes()) {
					return
				}
			}
		})
	}
	return all
}

// TestLent: a gateway that can have no review lets pass whom another one knows, for as long as that one would.
func TestLent(t *testing.T) {
	type call struct {
		at   time.Duration
		of   int // gateway
		api  error
		want error
	}
	for name, test := range map[string]struct {
		calls []call
		asked int // by the second gateway
	}{
		"reviews succeed": {[]call{{0, 0, nil, nil}, {time.Second, 1, nil, nil}}, 0},
		"away":            {[]call{{0, 0, nil, nil}, {time.Minute, 1, errAway, nil}, {11 * time.Minute, 1, errAway, nil}}, 1},
		"away for long":   {[]call{{0, 0, nil, nil}, {time.Minute, 1, errAway, nil}, {knownWhile, 1, errAway, ErrUnavailable}}, 2},
		"away before":     {[]call{{0, 0, errAway, ErrUnavailable}, {0, 1, errAway, ErrUnavailable}}, 1},
		"back":            {[]call{{0, 0, nil, nil}, {time.Minute, 1, errAway, nil}, {2 * time.Minute, 1, nil, nil}, {2*time.Minute + 20*time.Second, 1, errAway, nil}}, 1},
		"revoked meanwhile": {[]call{{0, 0, nil, nil}, {time.Minute, 1, errAway, nil}, {2 * time.Minute, 1, ErrRefused, nil}, {2*time.Minute + time.Second, 1, errAway, ErrRefused},
			{3 * time.Minute, 1, errAway, ErrUnavailable}, {4 * time.Minute, 1, errAway, ErrUnavailable}}, 1},
		"refused here":      {[]call{{0, 0, nil, nil}, {time.Minute, 1, ErrRefused, ErrRefused}, {2 * time.Minute, 1, errAway, ErrUnavailable}}, 0},
		"refused there":     {[]call{{0, 0, ErrRefused, ErrRefused}, {time.Second, 1, errAway, ErrUnavailable}}, 1},
		"revoked there":     {[]call{{0, 0, nil, nil}, {61 * time.Second, 0, ErrRefused, ErrRefused}, {62 * time.Second, 1, errAway, ErrUnavailable}}, 1},
		"not lent on":       {[]call{{0, 0, nil, nil}, {time.Minute, 1, errAway, nil}, {knownWhile, 0, errAway, ErrUnavailable}, {knownWhile, 1, errAway, ErrUnavailable}}, 2},
		"renewed there":     {[]call{{0, 0, nil, nil}, {time.Minute, 1, errAway, nil}, {10 * time.Minute, 0, nil, nil}, {13 * time.Minute, 1, errAway, nil}}, 2},
		"expires meanwhile": {[]call{{55 * time.Minute, 0, nil, nil}, {56 * time.Minute, 1, errAway, nil}, {time.Hour, 1, errAway, ErrRefused}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(2)
				begin := time.Now()
				text := newToken(AudienceFunctions, begin.Add(time.Hour))
				for _, c := range test.calls {
					time.Sleep(time.Until(begin.Add(c.at)))
					m := all[c.of]
					m.set(c.api, 0)
					got, err := m.tokens.Account(t.Context(), text)
					synctest.Wait()
					if !errors.Is(err, c.want) || err == nil && got != alice {
						t.Errorf("after %v: %v, error %v, want %v", c.at, got, err, c.want)
					}
				}
				if all[1].asked != test.asked {
					t.Errorf("asked %d times, want %d", all[1].asked, test.asked)
				}
			})
		})
	}
}

// TestLentAtOnce: only the first callers wait for an API server that is silent.
func TestLentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(2)
		for i := range 3 {
			text := newToken(AudienceFunctions, time.Now().Add(time.Hour))
			if _, err := all[0].tokens.Account(t.Context(), text); err != nil {
				t.Fatal(err)
			}
			all[1].set(nil, time.Hour)
			for range 3 {
				came := time.Now()
				_, err := all[1].tokens.Account(t.Context(), text)
				if took := time.Since(came); err != nil || i == 0 && took > reviewLimit || i > 0 && took > 0 {
					t.Errorf("token %d: error %v after %v", i, err, took)
				}
				time.Sleep(time.Second)
			}
		}
		if time.Sleep(2 * reviewLimit); all[1].reviews() != 3 {
			t.Errorf("%d reviews, want one of each token", all[1].reviews())
		}
	})
}

// TestLentAfterAll: that reviews failed a while ago is no reason to let pass a token without one.
func TestLentAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(2)
		known, other := newToken(AudienceFunctions, time.Now().Add(time.Hour)), newToken(AudienceFunctions, time.Now().Add(2*time.Hour))
		if _, err := all[0].tokens.Account(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		all[1].set(errAway, 0)
		if _, err := all[1].tokens.Account(t.Context(), other); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		time.Sleep(refreshAfter)
		all[1].set(ErrRefused, 0)
		if _, err := all[1].tokens.Account(t.Context(), known); !errors.Is(err, ErrRefused) {
			t.Errorf("a revoked token: error %v", err)
		}
	})
}

// TestLentAmongStrangers: strangers do not delay the review of a token that another gateway knows, which may have been revoked.
func TestLentAmongStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(2)
		known := newToken(AudienceFunctions, time.Now().Add(30*time.Minute))
		m := all[1]
		m.set(errAway, 0)
		for _, o := range all {
			if _, err := o.tokens.Account(t.Context(), known); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(reviewLimit)
		m.set(ErrRefused, 0)
		for i := range 1000 {
			_, _ = m.tokens.Account(t.Context(), newToken(AudienceFunctions, time.Now().Add(time.Hour+time.Duration(i)*time.Second)))
		}
		_, _ = m.tokens.Account(t.Context(), known) // it passes, and begins the review
		synctest.Wait()
		if _, err := m.tokens.Account(t.Context(), known); !errors.Is(err, ErrRefused) {
			t.Errorf("a revoked token: error %v", err)
		}
	})
}

// TestKnownNoLonger: whatever gateways ask and whichever are cut off, no token passes later than twelve minutes after the last review that succeeded at
// any of them.
func TestKnownNoLonger(t *testing.T) {
	var lent int
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			all := newMembers(3)
			text := newToken(AudienceFunctions, time.Now().Add(100*time.Hour))
			var last time.Time // when a review may have succeeded
			for range 300 {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(40*time.Second)))
				m := all[random.IntN(len(all))]
				err := errAway
				if random.IntN(30) == 0 {
					err = nil
				}
				m.set(err, 0)
				before := m.reviews()
				_, got := m.tokens.Account(t.Context(), text)
				synctest.Wait()
				if err == nil && m.reviews() > before {
					last = time.Now()
				}
				if age := time.Since(last); got == nil && age > knownWhile {
					t.Fatalf("seed %d: known %v after the last review", seed, age)
				}
				for _, e := range m.tokens.known {
					if got == nil && !e.holds(time.Now()) {
						lent++
					}
				}
			}
		})
	}
	if lent < 500 {
		t.Errorf("%d calls passed by the word of another gateway: too few to tell", lent)
	}
}

// TestOthersOfStrangers: strangers cause as few questions as reviews, and none while reviews succeed or refuse.
func TestOthersOfStrangers(t *testing.T) {
	for name, test := range map[string]struct {
		api  error
		most int
	}{"away": {errAway, reviewsAtOnce}, "refused": {ErrRefused, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(2)
				known := newToken(AudienceFunctions, time.Now().Add(50*time.Minute))
				if _, err := all[0].tokens.Account(t.Context(), known); err != nil {
					t.Fatal(err)
				}
				m := all[1]
				m.set(errAway, 0)
				if _, err := m.tokens.Account(t.Context(), known); err != nil {
					t.Fatal(err)
				}
				m.set(test.api, 0)
				m.asked = 0
				for i := range 5000 {
					if _, err := m.tokens.Account(t.Context(), newToken(AudienceFunctions, time.Now().Add(time.Hour+time.Duration(i)*time.Second))); err == nil {
						t.Fatal("a stranger passes")
					}
				}
				if m.asked > max(test.most, 1) || test.most > 0 && m.asked < test.most/2 { // the first one may come as reviews seem to fail
					t.Errorf("asked %d times, want up to %d", m.asked, test.most)
				}
				if _, err := m.tokens.Account(t.Context(), known); err != nil {
					t.Errorf("the known token: %v", err)
				}
			})
		})
	}
}

// TestBadLoans asks gateways that answer what they should not.
func TestBadLoans(t *testing.T) {
	good := func(ms int64) string {
		return fmt.Sprintf(`{"namespace":"models","name":"alice","holdsMilliseconds":%d}`, ms)
	}
	for name, test := range map[string]struct {
		answers []string
		takes   time.Duration
		lasts   time.Duration // 0 if it is of no use
	}{
		"good":            {[]string{good(60_000)}, 0, time.Minute},
		"forever":         {[]string{good(math.MaxInt64)}, 0, knownWhile},
		"late":            {[]string{good(60_000)}, 200 * time.Millisecond, time.Minute - 200*time.Millisecond},
		"ended":           {[]string{good(0)}, 0, 0},
		"negative":        {[]string{good(-60_000)}, 0, 0},
		"no account":      {[]string{`{"holdsMilliseconds":60000}`}, 0, 0},
		"no name":         {[]string{`{"namespace":"models","holdsMilliseconds":60000}`}, 0, 0},
		"no JSON":         {[]string{"404 page not found"}, 0, 0},
		"empty":           {[]string{""}, 0, 0},
		"one of them":     {[]string{"", good(-1), good(60_000), good(600_000)}, 0, time.Minute},
		"hangs":           {[]string{good(60_000)}, time.Hour, 0},
		"longer than it":  {[]string{good(60_000)}, askLimit + time.Millisecond, 0},
		"nobody answers":  {nil, 0, 0},
		"nobody, forever": {nil, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &reviewer{err: errAway}
				tokens := NewTokens(AudienceFunctions, r.review)
				answers := test.answers
				tokens.AskOthers(func(ctx context.Context, path string, use func([]byte) bool) {
					select {
					case <-time.After(test.takes):
					case <-ctx.Done():
						return
					}
					for _, a := range answers {
						if use([]byte(a)) {
							break
						}
					}
					answers = nil // it has changed its mind
				})
				text := newToken(AudienceFunctions, time.Now().Add(time.Hour))
				begin := time.Now()
				_, err := tokens.Account(t.Context(), text)
				if took := time.Since(begin); took > askLimit || (err == nil) != (test.lasts > 0) {
					t.Fatalf("error %v after %v", err, took)
				}
				if err != nil {
					return
				}
				time.Sleep(test.lasts - time.Millisecond)
				if _, err := tokens.Account(t.Context(), text); err != nil {
					t.Errorf("before %v: %v", test.lasts, err)
				}
				time.Sleep(time.Millisecond)
				if _, err := tokens.Account(t.Context(), text); !errors.Is(err, ErrUnavailable) {
					t.Errorf("after %v: error %v", test.lasts, err)
				}
			})
		})
	}
}

// TestLend: what a gateway tells others ends with the token, and twelve minutes after its own review.
func TestLend(t *testing.T) {
	for name, test := range map[string]struct {
		expires, asked time.Duration
		want           int64 // milliseconds
	}{
		"at once":       {time.Hour, 0, knownWhile.Milliseconds()},
		"later":         {time.Hour, 5 * time.Minute, (7 * time.Minute).Milliseconds()},
		"too late":      {time.Hour, knownWhile, 0},
		"expires first": {10 * time.Minute, 5 * time.Minute, (5 * time.Minute).Milliseconds()},
		"has expired":   {10 * time.Minute, 10 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMembers(1)[0]
				text := newToken(AudienceFunctions, time.Now().Add(test.expires))
				if _, err := m.tokens.Account(t.Context(), text); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.asked)
				l, isKnown := m.tokens.lend(sha256.Sum256([]byte(text)))
				if isKnown != (test.want > 0) || isKnown && l != (lending{alice.Namespace, alice.Name, test.want}) {
					t.Errorf("%+v, known: %t, want %d ms", l, isKnown, test.want)
				}
			})
		})
	}
}

// TestServeOthers sends questions that no gateway of this version has.
func TestServeOthers(t *testing.T) {
	m := newMembers(1)[0]
	text := newToken(AudienceFunctions, time.Now().Add(time.Hour))
	if _, err := m.tokens.Account(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	var key string
	for k := range m.tokens.known {
		key = fmt.Sprintf("%x", k)
	}
	for name, test := range map[string]struct {
		query url.Values
		want  int
	}{
		"good":           {url.Values{"audience": {AudienceFunctions}, "sha256": {key}}, http.StatusOK},
		"other token":    {url.Values{"audience": {AudienceFunctions}, "sha256": {fmt.Sprintf("%x", sha256.Sum256([]byte("other")))}}, http.StatusNotFound},
		"other audience": {url.Values{"audience": {AudienceReports}, "sha256": {key}}, http.StatusNotFound},
		"no audience":    {url.Values{"sha256": {key}}, http.StatusNotFound},
		"no token":       {url.Values{"audience": {AudienceFunctions}}, http.StatusNotFound},
		"short":          {url.Values{"audience": {AudienceFunctions}, "sha256": {key[2:]}}, http.StatusNotFound},
		"no hash":        {url.Values{"audience": {AudienceFunctions}, "sha256": {text}}, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			m.tokens.ServeOthers(w, httptest.NewRequest(http.MethodGet, TokensPath+"?"+test.query.Encode(), nil))
			if body, _ := io.ReadAll(w.Body); w.Code != test.want {
				t.Errorf("status %d: %s", w.Code, body)
			}
		})
	}
}
