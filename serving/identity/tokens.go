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

// Audiences of tokens. One for the first is no good for the second.
const (
	AudienceFunctions = "serving.gshare.dev"         // of callers of functions
	AudienceReports   = "reports.serving.gshare.dev" // of who reads the load reports of gateways
)

// outage is how long the API server may be away without a caller noticing that was known before.
const outage = 10 * time.Minute

// Times of what is known of a token. An answer that holds as the API server leaves may be knownFor old, and one that is back takes some time until it
// answers reviews.
const (
	refreshAfter = 30 * time.Second    // it is reviewed again, while the last answer still holds
	knownFor     = time.Minute         // after which a review has to end before it holds
	knownWhile   = outage + 2*knownFor // instead, while no review succeeds
	refusedFor   = 10 * time.Second    // one that was refused
	reviewLimit  = 5 * time.Second     // of a review, and the time until the next one if it fails
)

// Bounds of what strangers can cause.
const (
	maxTokens        = 10_000 // known at once
	maxTokenLength   = 16 << 10
	reviewsPerSecond = 50 // of tokens that are not known
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

// Review asks who sends a token for an audience. The error is ErrRefused, wrapped, if the token is not one; others say that it could not ask.
type Review func(ctx context.Context, token, audience string) (Account, error)

// Tokens finds the service accounts of tokens. What it has found holds for a minute; while no review succeeds, twelve minutes and no longer than
// the token, and so does what others have found. Its methods may be called concurrently.
type Tokens struct {
	audience string
	review   Review
	ask      Ask // nil without others
	limit    *rate.Limiter

	mu    sync.Mutex
	known map[[sha256.Size]byte]*token
	away  error     // of the last review of any token, if it did not succeed
	since time.Time // when that ended
}

// token is what is known of a token.
type token struct {
	expires  time.Time
	reviewed time.Time // when a review succeeded last
	account  Account
	err      error         // of that review: ErrRefused
	failed   error         // of the last review, if it did not succeed
	failedAt time.Time     // when that was found
	lent     loan          // holds while reviews fail
	again    time.Time     // before which there is no review, after one that failed
	pending  chan struct{} // closed when the present review ends; nil without one
}

// holds reports whether the last own review lets the token pass, if the next one does not succeed.
func (e *token) holds(now time.Time) bool {
	return e.isGood() && now.Sub(e.reviewed) < knownWhile
}

func (e *token) isGood() bool { return !e.reviewed.IsZero() && e.err == nil }

// NewTokens returns one that knows no token.
func NewTokens(audience string, review Review) *Tokens {
	return &Tokens{audience: audience, review: review, limit: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce), known: map[[sha256.Size]byte]*token{}}
}

// Find returns the token in the value of a header Authorization, "" if there is none for the audience. It does not say whether the token is valid.
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

// Account returns the service account of a token of Find. The error is ErrRefused or ErrUnavailable, wrapped, or that of ctx.
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

// look returns what is known of a token or, if that is too little, a channel that is closed when more is.
func (t *Tokens) look(key [sha256.Size]byte, text string, expires time.Time) (Account, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	e := t.known[key]
	if e == nil {
		e = &token{expires: expires}
	}
	age, isKnown := now.Sub(e.reviewed), !e.reviewed.IsZero()
	isAway := e.failed != nil && now.Sub(e.failedAt) < knownFor+reviewLimit // one that failed long ago says nothing of now
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

// start begins a review if none is under way. It returns false if it is too early after one that failed, or strangers send many tokens. The caller holds the mutex.
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
	// Others may have known a token before it was refused here.
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

// finding is what has been found out of a token.
type finding struct {
	reviewed bool // or else err is that of a review of before
	account  Account
	err      error // of the review
	lent     loan  // zero if nobody has been asked, or knows it
}

// find has a token reviewed and, if that fails, asks others for it if asks says so. While reviews fail, as away says, it asks them first, since it may
// take long until a review fails, and has it reviewed if they do not know it.
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

// take keeps what has been found out of a token. The caller holds the mutex.
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
	if f.reviewed { // or else the next request begins a review, for which nobody waits
		e.again = now.Add(reviewLimit)
		t.away, t.since = f.err, now
	}
}

// reviewNow has a token reviewed.
func (t *Tokens) reviewNow(text string) (Account, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewLimit) // for all who wait, of whom the first may leave
	defer cancel()
	return t.review(ctx, text, t.audience)
}

// makeRoom forgets tokens that are of no use any more, and any others if that is not enough. The caller holds the mutex.
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

// claims are those of a token that say whether it is worth a review.
type claims struct {
	Audiences audiences `json:"aud"`
	Expires   int64     `json:"exp"`
}

func (c claims) expires() time.Time { return time.Unix(c.Expires, 0) }

// audiences are one string or a list.
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

// parseClaims returns the claims of a JSON Web Token, whose signature it does not check.
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
