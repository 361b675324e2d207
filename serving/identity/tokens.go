package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Audiences of tokens. A token for one of them is not valid for the other.
const (
	AudienceFunctions = "serving.gshare.dev"         // for callers of functions
	AudienceReports   = "reports.serving.gshare.dev" // for readers of the load reports of gateways
)

// outage is how long the API server may be unreachable without any effect on callers that were known before.
const outage = 10 * time.Minute

// How long the result of a review is used. When the API server becomes unreachable, a result may already be up to knownFor old; and when it is back,
// it takes some time until it answers reviews.
const (
	refreshAfter = 30 * time.Second    // age at which the token is reviewed again while the result is still used
	knownFor     = time.Minute         // age from which a caller waits for the next review
	knownWhile   = outage + 2*knownFor // used instead of knownFor while no review succeeds
	refusedFor   = 10 * time.Second    // for a token that was refused
	reviewLimit  = 5 * time.Second     // duration of a review, and the time until the next one if it fails
)

// Bounds of the work that unknown callers can cause.
const (
	maxTokens        = 10_000 // tokens known at once
	maxTokenLength   = 16 << 10
	reviewsPerSecond = 50 // for tokens that are not known
	reviewsAtOnce    = 100
)

// Errors of Tokens.
var (
	ErrRefused     = errors.New("the token is not valid")
	ErrUnavailable = errors.New("the token cannot be reviewed now")

	errMany = errors.New("too many others are reviewed")
)

// Account is a service account.
type Account struct{ Namespace, Name string }

// Review asks whose token this is and whether it is for an audience. The error wraps ErrRefused if the token is not valid; other errors say that the
// review failed.
type Review func(ctx context.Context, token, audience string) (Account, error)

// Tokens finds the service accounts that tokens belong to. A result is used for one minute. While no review succeeds, it is used for twelve minutes,
// but no longer than the token is valid; the same holds for results of other gateways. Its methods may be called concurrently.
type Tokens struct {
	audience string
	review   Review
	ask      Ask // nil if there are no other gateways
	limit    *rate.Limiter

	mu    sync.Mutex
	known map[[sha256.Size]byte]*token
	away  error     // error of the last review of any token, if that failed
	since time.Time // when that review ended
}

// token is what is known about a token.
type token struct {
	expires  time.Time
	reviewed time.Time // when the last successful review ended
	account  Account
	err      error         // result of that review: nil or ErrRefused
	failed   error         // error of the last review, if that failed
	failedAt time.Time     // when failed was set
	lent     loan          // result of another gateway, used while reviews fail
	again    time.Time     // earliest time of the next review, after one that failed
	pending  chan struct{} // closed when the review in progress ends; nil if there is none
}

// holds reports whether the last review by this gateway lets the token pass while further reviews fail.
func (e *token) holds(now time.Time) bool {
	return e.isGood() && now.Sub(e.reviewed) < knownWhile
}

func (e *token) isGood() bool { return !e.reviewed.IsZero() && e.err == nil }

// NewTokens returns Tokens that know no token yet.
func NewTokens(audience string, review Review) *Tokens {
	return &Tokens{audience: audience, review: review, limit: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce), known: map[[sha256.Size]byte]*token{}}
}

// Find returns the token in the value of an Authorization header, or "" if the header has none for the audience. It does not check that the token is valid.
func (t *Tokens) Find(authorization string) string {
	text, isBearer := cutBearer(authorization)
	if !isBearer || len(text) > maxTokenLength {
		return ""
	}
	if c, err := parseClaims(text); err != nil || !slices.Contains(c.Audiences, t.audience) {
		return ""
	}
	return text
}

func cutBearer(authorization string) (string, bool) {
	scheme, text, _ := strings.Cut(authorization, " ")
	return strings.TrimSpace(text), strings.EqualFold(scheme, "Bearer")
}

// Account returns the service account of a token that Find returned. The error wraps ErrRefused or ErrUnavailable, or is that of ctx.
func (t *Tokens) Account(ctx context.Context, text string) (Account, error) {
	c, err := parseClaims(text)
	if err != nil || !slices.Contains(c.Audiences, t.audience) {
		return Account{}, fmt.Errorf("%w: it is none of a service account for the audience %s", ErrRefused, t.audience)
	}
	key := sha256.Sum256([]byte(text))
	for {
		if !time.Now().Before(c.expires()) {
			return Account{}, fmt.Errorf("%w: it has expired", ErrRefused)
		}
		e, wait, err := t.look(key, text, c.expires())
		if wait == nil {
			return e, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return Account{}, ctx.Err()
		}
	}
}

// look returns what is known about a token or, if that is not enough, a channel that is closed when more is known.
func (t *Tokens) look(key [sha256.Size]byte, text string, expires time.Time) (Account, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	e := t.known[key]
	if e == nil {
		e = &token{expires: expires}
	}
	age, isKnown := now.Sub(e.reviewed), !e.reviewed.IsZero()
	isAway := e.failed != nil && now.Sub(e.failedAt) < knownFor+reviewLimit // a failure long ago says nothing about the present
	switch {
	case isKnown && e.err != nil && age < refusedFor:
		return Account{}, nil, e.err
	case isKnown && e.err == nil && age < refreshAfter:
		return e.account, nil, nil
	case isKnown && e.err == nil && (age < knownFor || isAway && age < knownWhile):
		t.start(e, text, now)
		return e.account, nil, nil
	case isAway && now.Before(e.lent.until):
		t.start(e, text, now)
		return e.lent.account, nil, nil
	case !t.start(e, text, now):
		e.failed = cmp.Or(e.failed, errMany)
		return Account{}, nil, fmt.Errorf("%w: %w", ErrUnavailable, e.failed)
	}
	return Account{}, e.pending, nil
}

// start begins a review of a token unless one is in progress. It returns false if the last one failed too recently, or if unknown callers send too
// many tokens. The caller holds the mutex.
func (t *Tokens) start(e *token, text string, now time.Time) bool {
	if e.pending != nil {
		return true
	}
	isStrange := !e.isGood() && !now.Before(e.lent.until)
	if now.Before(e.again) || isStrange && !t.limit.AllowN(now, 1) {
		return false
	}
	key := sha256.Sum256([]byte(text))
	if t.known[key] == nil {
		t.makeRoom(now)
		t.known[key] = e
	}
	e.pending = make(chan struct{})
	// If a review here has refused the token, other gateways are not asked: they may have known it before that.
	asks := t.ask != nil && e.err == nil && !e.holds(now) && !now.Before(e.lent.until)
	var away error
	if t.away != nil && now.Sub(t.since) < refreshAfter {
		away = t.away
	}
	go func() {
		f := t.find(key, text, asks, away)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.take(e, f, time.Now())
		close(e.pending)
		e.pending = nil
	}()
	return true
}

// finding is what has been found out about a token.
type finding struct {
	reviewed bool // if false, err is the error of an earlier review
	account  Account
	err      error // error of the review
	lent     loan  // zero if no other gateway was asked or knows the token
}

// find reviews a token. If asks says so, it also asks other gateways: after a review that fails, or, if the last reviews failed (away), before, since
// it may take long until a review fails. In that case the token is reviewed only if they do not know it.
func (t *Tokens) find(key [sha256.Size]byte, text string, asks bool, away error) (f finding) {
	if asks && away != nil {
		if f.lent = t.borrow(key); !f.lent.until.IsZero() {
			f.err = away
			return f
		}
	}
	f.reviewed = true
	f.account, f.err = t.reviewNow(text)
	if asks && away == nil && f.err != nil && !errors.Is(f.err, ErrRefused) {
		f.lent = t.borrow(key)
	}
	return f
}

// take stores what has been found out about a token. The caller holds the mutex.
func (t *Tokens) take(e *token, f finding, now time.Time) {
	if f.err == nil || errors.Is(f.err, ErrRefused) {
		e.account, e.err, e.reviewed, e.failed, e.lent = f.account, f.err, now, nil, loan{}
		t.away = nil
		return
	}
	e.failed, e.failedAt = f.err, now
	if !f.lent.until.IsZero() {
		e.lent = f.lent
	}
	if f.reviewed { // otherwise the next request begins a review, and nobody waits for it
		e.again = now.Add(reviewLimit)
		t.away, t.since = f.err, now
	}
}

// reviewNow asks for a review of a token.
func (t *Tokens) reviewNow(text string) (Account, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewLimit) // not the context of a caller, who may leave while others still wait
	defer cancel()
	return t.review(ctx, text, t.audience)
}

// makeRoom forgets tokens that are of no more use or, if that is not enough, any tokens. The caller holds the mutex.
func (t *Tokens) makeRoom(now time.Time) {
	if len(t.known) < maxTokens {
		return
	}
	for key, e := range t.known {
		if e.pending == nil && (!now.Before(e.expires) || !e.holds(now) && !now.Before(e.lent.until)) {
			delete(t.known, key)
		}
	}
	for key := range t.known {
		if len(t.known) < maxTokens {
			return
		}
		delete(t.known, key)
	}
}

// claims are the claims of a token that show whether it is worth a review.
type claims struct {
	Audiences audiences `json:"aud"`
	Expires   int64     `json:"exp"`
}

func (c claims) expires() time.Time { return time.Unix(c.Expires, 0) }

// audiences is the claim "aud": a string or a list of strings.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// parseClaims returns the claims of a JSON Web Token. It does not check the signature.
func parseClaims(text string) (claims, error) {
	var c claims
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return c, errors.New("is no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(payload, &c)
}
