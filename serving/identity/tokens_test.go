package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authentication "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// newToken returns a token that parses, whose signature the fake reviewers do not check.
func newToken(audience string, expires time.Time) string {
	payload := fmt.Sprintf(`{"aud": [%q], "exp": %d}`, audience, expires.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

var alice = Account{"models", "alice"}

// reviewer is an API server that reviews tokens.
type reviewer struct {
	mu     sync.Mutex
	err    error // of all reviews
	takes  time.Duration
	number int // of reviews
}

func (r *reviewer) review(ctx context.Context, _, _ string) (Account, error) {
	r.mu.Lock()
	r.number++
	err, takes := r.err, r.takes
	r.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return Account{}, ctx.Err()
	}
	return alice, err
}

func (r *reviewer) set(err error, takes time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.takes = err, takes
}

func (r *reviewer) reviews() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.number
}

var errAway = errors.New("connection refused")

// TestTokenCache: what is known holds for as long as documented, with the API server and without it.
func TestTokenCache(t *testing.T) {
	type step struct {
		at      time.Duration // since the first review
		api     error
		takes   time.Duration // of a review
		want    error
		reviews int // since the begin
	}
	for name, steps := range map[string][]step{
		"cached":              {{29 * time.Second, nil, 0, nil, 1}},
		"refreshed":           {{31 * time.Second, nil, 0, nil, 2}, {50 * time.Second, nil, 0, nil, 2}, {62 * time.Second, nil, 0, nil, 3}},
		"refreshed unnoticed": {{40 * time.Second, nil, 2 * time.Second, nil, 2}},
		"revoked":             {{61 * time.Second, ErrRefused, 0, ErrRefused, 2}, {70 * time.Second, ErrRefused, 0, ErrRefused, 2}},
		"allowed again":       {{61 * time.Second, ErrRefused, 0, ErrRefused, 2}, {72 * time.Second, nil, 0, nil, 3}},
		"away":                {{61 * time.Second, errAway, 0, nil, 2}, {62 * time.Second, errAway, 0, nil, 2}, {719 * time.Second, errAway, 0, nil, 3}},
		"away for long":       {{61 * time.Second, errAway, 0, nil, 2}, {721 * time.Second, errAway, 0, ErrUnavailable, 3}},
		"away, back":          {{61 * time.Second, errAway, 0, nil, 2}, {721 * time.Second, errAway, 0, ErrUnavailable, 3}, {730 * time.Second, nil, 0, nil, 4}},
		// A review that failed long ago says nothing of an API server that answers now, so that a token revoked meanwhile does not pass.
		"away, revoked while unused": {{61 * time.Second, errAway, 0, nil, 2}, {719 * time.Second, ErrRefused, 0, ErrRefused, 3}},
		"silent":                     {{61 * time.Second, nil, time.Hour, nil, 2}},
		"revoked meanwhile":          {{61 * time.Second, errAway, 0, nil, 2}, {70 * time.Second, ErrRefused, 0, nil, 3}, {71 * time.Second, ErrRefused, 0, ErrRefused, 3}},
		"expired":                    {{time.Hour, nil, 0, ErrRefused, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &reviewer{}
				tokens := NewTokens(AudienceReports, r.review)
				text := newToken(AudienceReports, time.Now().Add(time.Hour))
				if got, err := tokens.Account(t.Context(), text); got != alice || err != nil {
					t.Fatalf("%v, error %v", got, err)
				}
				begin := time.Now()
				for _, s := range steps {
					time.Sleep(s.at - time.Since(begin))
					r.set(s.api, s.takes)
					got, err := tokens.Account(t.Context(), text)
					took := time.Since(begin) - s.at
					synctest.Wait()
					if !errors.Is(err, s.want) || err == nil && got != alice || r.reviews() != s.reviews {
						t.Errorf("after %v: %v, error %v, %d reviews; want error %v, %d reviews", s.at, got, err, r.reviews(), s.want, s.reviews)
					}
					if took > reviewLimit || name == "refreshed unnoticed" && took > 0 {
						t.Errorf("after %v: took %v", s.at, took)
					}
				}
				time.Sleep(reviewLimit) // of the last review
			})
		})
	}
}

// TestOutage: who calls at least once a minute does not notice that the API server is away for ten minutes, whenever that begins, whether it refuses
// connections or is silent. Nobody waits for a silent one for longer than a review may take.
func TestOutage(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Hour} {
		for _, every := range []time.Duration{time.Second, 7 * time.Second, 29 * time.Second, 31 * time.Second, 59 * time.Second} {
			for begins := 2 * time.Minute; begins < 3*time.Minute; begins += 11 * time.Second {
				t.Run(fmt.Sprintf("each %v from %v on, reviews take %v", every, begins, takes), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := &reviewer{}
						tokens := NewTokens(AudienceFunctions, r.review)
						text := newToken(AudienceFunctions, time.Now().Add(time.Hour))
						begin := time.Now()
						for at := time.Duration(0); at < 20*time.Minute; at += every {
							time.Sleep(time.Until(begin.Add(at)))
							r.set(nil, 0)
							if at >= begins && at < begins+outage {
								r.set(errAway, takes)
							}
							came := time.Now()
							if _, err := tokens.Account(t.Context(), text); err != nil || time.Since(came) > reviewLimit {
								t.Errorf("at %v, after %v: error %v", at, time.Since(came), err)
							}
						}
						time.Sleep(reviewLimit) // of the last review
					})
				})
			}
		}
	}
}

// TestTokensOfStrangers: tokens that are not known cause few reviews, and a known one passes meanwhile.
func TestTokensOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{}
		tokens := NewTokens(AudienceReports, r.review)
		good := newToken(AudienceReports, time.Now().Add(time.Hour))
		if _, err := tokens.Account(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		r.set(ErrRefused, 0)
		const many = 20_000
		begun := r.reviews()
		var unavailable int
		for i := range many {
			_, err := tokens.Account(t.Context(), newToken(AudienceReports, time.Now().Add(time.Hour+time.Duration(i+1)*time.Second)))
			switch {
			case errors.Is(err, ErrUnavailable):
				unavailable++
			case !errors.Is(err, ErrRefused):
				t.Fatal(err)
			}
		}
		if n := r.reviews() - begun; n > reviewsAtOnce || unavailable != many-n || len(tokens.known) > reviewsAtOnce+1 {
			t.Errorf("%d reviews, %d unavailable, %d known", n, unavailable, len(tokens.known))
		}
		if _, err := tokens.Account(t.Context(), good); err != nil {
			t.Errorf("the known token: %v", err)
		}
	})
}

// TestTokenOnce: callers with the same token share a review, and one that leaves does not end it.
func TestTokenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{takes: time.Second}
		tokens := NewTokens(AudienceReports, r.review)
		text := newToken(AudienceReports, time.Now().Add(time.Hour))
		gone, leave := context.WithCancel(t.Context())
		results := make(chan error, 10)
		for i := range 10 {
			ctx := t.Context()
			if i == 0 {
				ctx = gone
			}
			go func() { _, err := tokens.Account(ctx, text); results <- err }()
			synctest.Wait()
		}
		leave()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that leaves: %v", err)
		}
		for range 9 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if r.reviews() != 1 {
			t.Errorf("%d reviews, want 1", r.reviews())
		}
	})
}

func TestMakeRoom(t *testing.T) {
	now := time.Now()
	tokens := NewTokens(AudienceReports, nil)
	for i := range maxTokens {
		e := &token{expires: now.Add(time.Hour), reviewed: now}
		if i%2 == 0 {
			e.err = ErrRefused
		}
		tokens.known[[32]byte{byte(i), byte(i >> 8)}] = e
	}
	tokens.makeRoom(now)
	if len(tokens.known) != maxTokens/2 {
		t.Errorf("%d are known, want those that are good", len(tokens.known))
	}
}

func TestFindToken(t *testing.T) {
	ours := newToken(AudienceFunctions, time.Now())
	tokens := NewTokens(AudienceFunctions, nil)
	for name, test := range map[string]struct{ header, want string }{
		"ours":           {"Bearer " + ours, ours},
		"lower case":     {"bearer " + ours, ours},
		"other audience": {"Bearer " + newToken(AudienceReports, time.Now()), ""},
		"one audience":   {"Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud": "serving.gshare.dev"}`)) + ".c2ln", "e30.eyJhdWQiOiAic2VydmluZy5nc2hhcmUuZGV2In0.c2ln"},
		"API key":        {"Bearer sk-1234", ""},
		"basic":          {"Basic " + ours, ""},
		"none":           {"", ""},
		"no base64":      {"Bearer a.!.c", ""},
		"no JSON":        {"Bearer a.AAAA.c", ""},
		"too long":       {"Bearer " + ours + string(make([]byte, maxTokenLength)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tokens.Find(test.header); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestReviewBy(t *testing.T) {
	for name, test := range map[string]struct {
		status authentication.TokenReviewStatus
		api    error
		want   Account
		err    error
	}{
		"good":            {authentication.TokenReviewStatus{Authenticated: true, User: authentication.UserInfo{Username: "system:serviceaccount:models:alice"}, Audiences: []string{AudienceReports}}, nil, alice, nil},
		"refused":         {authentication.TokenReviewStatus{Error: "token has been invalidated"}, nil, Account{}, ErrRefused},
		"refused, silent": {authentication.TokenReviewStatus{}, nil, Account{}, ErrRefused},
		"no audience":     {authentication.TokenReviewStatus{Authenticated: true, User: authentication.UserInfo{Username: "system:serviceaccount:models:alice"}}, nil, Account{}, ErrRefused},
		"other audience":  {authentication.TokenReviewStatus{Authenticated: true, User: authentication.UserInfo{Username: "system:serviceaccount:models:alice"}, Audiences: []string{AudienceFunctions}}, nil, Account{}, ErrRefused},
		"a person":        {authentication.TokenReviewStatus{Authenticated: true, User: authentication.UserInfo{Username: "alice"}, Audiences: []string{AudienceReports}}, nil, Account{}, ErrRefused},
		"away":            {authentication.TokenReviewStatus{}, errAway, Account{}, errAway},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientset()
			c.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
				r := a.(clienttesting.CreateAction).GetObject().(*authentication.TokenReview)
				if r.Spec.Token != "secret" || len(r.Spec.Audiences) != 1 || r.Spec.Audiences[0] != AudienceReports {
					t.Errorf("asks for %+v", r.Spec)
				}
				return true, &authentication.TokenReview{Status: test.status}, test.api
			})
			got, err := ReviewBy(c.AuthenticationV1().TokenReviews())(t.Context(), "secret", AudienceReports)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("%v, error %v; want %v, %v", got, err, test.want, test.err)
			}
		})
	}
}
