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

// TokensPath is the path at which a gateway tells other gateways whether it knows a token. It answers GET TokensPath?audience=AUDIENCE&sha256=HEX
// with status 200 and a JSON object if it does, or with status 404. Gateways of other versions, which use another path, answer 404 as well.
const TokensPath = "/tokens/v1"

// askLimit is how long all other gateways together may take to answer: as long as a serving gateway may be silent.
const askLimit = 300 * time.Millisecond

// Ask sends a GET request with a path and query to all other gateways at once. It calls use with the bodies of answers of status 200, one at a time,
// until use returns true or ctx ends. It ensures that those that answer are gateways.
type Ask func(ctx context.Context, pathAndQuery string, use func(answer []byte) bool)

// loan is what another gateway knows about a token. It is not passed on: a gateway answers others only from its own reviews.
type loan struct {
	account Account
	until   time.Time // unless the token expires before
}

// lending is the answer to another gateway. It has a duration instead of a time of day, since clocks differ.
type lending struct {
	Namespace         string `json:"namespace"` // of the service account
	Name              string `json:"name"`
	HoldsMilliseconds int64  `json:"holdsMilliseconds"` // from the answer on, for as long as the other gateway cannot have a review
}

// AskOthers makes t ask other gateways about a token when a review fails. So if any gateway knew a caller before the API server became unreachable,
// all gateways go on accepting it. t limits how many unknown tokens it asks about, as it limits how many it has reviewed, and asks about none that a
// review has refused. Call it before Account.
func (t *Tokens) AskOthers(ask Ask) { t.ask = ask }

// borrow asks the other gateways about a token. It returns the zero loan if none of them knows it.
func (t *Tokens) borrow(key [sha256.Size]byte) (lent loan) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	asked := time.Now() // not when the answer comes, which may have been under way for a while
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

// ServeOthers answers questions that other gateways ask by AskOthers. It does not check who asks.
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
	_ = json.NewEncoder(w).Encode(l) // fails only if the other gateway has gone
}

// lend returns what this gateway's own reviews say about a token, or false if they are too old or have refused it.
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
