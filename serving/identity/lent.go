package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// TokensPath is where a gateway answers other gateways whether it knows a token: to GET TokensPath?audience=AUDIENCE&sha256=HEX with status 200 and a
// JSON object, if so, or status 404. Gateways of other versions, which have another path, answer 404 as well.
const TokensPath = "/tokens/v1"

// askLimit is how long all others together may take to answer: as long as a gateway may be silent that serves.
const askLimit = 300 * time.Millisecond

// Ask sends GET with a path and query to all other gateways at once. It calls use with the bodies of their answers of status 200, one after
// another, until use returns true or ctx ends. It makes sure that they are gateways.
type Ask func(ctx context.Context, pathAndQuery string, use func(answer []byte) bool)

// loan is what another gateway knows of a token. It is not lent on: an own answer to others comes from an own review.
type loan struct {
	account Account
	until   time.Time // if the token does not expire before
}

// lending is an answer to another gateway. It has no time of day: clocks differ.
type lending struct {
	Namespace         string `json:"namespace"` // of the service account
	Name              string `json:"name"`
	HoldsMilliseconds int64  `json:"holdsMilliseconds"` // from the answer on, while the other gateway can have no review
}

// AskOthers lets t ask others for a token when a review fails: whoever knew a caller before the API server left speaks for it at all gateways. t asks
// for few tokens of strangers, as it has few of them reviewed, and for none that it has found refused. Call it before Account.
func (t *Tokens) AskOthers(ask Ask) { t.ask = ask }

// borrow asks the others for a token. It returns the zero loan if none of them knows it.
func (t *Tokens) borrow(key [sha256.Size]byte) (lent loan) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	asked := time.Now() // and not when the answer comes: it may have been under way for a while
	query := url.Values{"audience": {t.audience}, "sha256": {hex.EncodeToString(key[:])}}
	t.ask(ctx, TokensPath+"?"+query.Encode(), func(answer []byte) bool {
		var l lending
		if json.Unmarshal(answer, &l) != nil || l.Namespace == "" || l.Name == "" || l.HoldsMilliseconds <= 0 {
			return false
		}
		holds := time.Duration(min(l.HoldsMilliseconds, knownWhile.Milliseconds())) * time.Millisecond
		lent = loan{Account{Namespace: l.Namespace, Name: l.Name}, asked.Add(holds)}
		return true
	})
	return lent
}

// ServeOthers answers the questions of AskOthers at other gateways. It does not check who asks.
func (t *Tokens) ServeOthers(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	key, err := hex.DecodeString(query.Get("sha256"))
	if err != nil || len(key) != sha256.Size || query.Get("audience") != t.audience {
		http.NotFound(w, r)
		return
	}
	l, isKnown := t.lend([sha256.Size]byte(key))
	if !isKnown {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l) // fails if the other one has gone
}

// lend returns what own reviews say of a token, and false if it is too old or the token was refused.
func (t *Tokens) lend(key [sha256.Size]byte) (lending, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	e := t.known[key]
	if e == nil || !e.holds(now) {
		return lending{}, false
	}
	until := e.reviewed.Add(knownWhile)
	if e.expires.Before(until) {
		until = e.expires
	}
	left := until.Sub(now).Milliseconds()
	return lending{e.account.Namespace, e.account.Name, left}, left > 0
}
