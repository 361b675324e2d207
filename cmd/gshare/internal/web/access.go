package web

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	decisionTTL   = 10 * time.Second // how long a decision of the API server is cached
	reviewTimeout = 10 * time.Second // of the two requests of one decision
	maxDecisions  = 1024             // the cache is emptied when it has as many
)

// accessControl is an HTTP handler that passes requests on only if the API server authenticates their token (TokenReview) and authorizes
// the user for their path and verb (SubjectAccessReview). It answers others with 401 or 403. There is no anonymous access.
type accessControl struct {
	client kubernetes.Interface
	next   http.Handler

	mu        sync.Mutex // guards decisions
	decisions map[requestKey]decision
}

// requestKey identifies a cached access decision: the hash of a token, a verb and a path.
type requestKey [sha256.Size]byte

// decision is a cached access decision: the HTTP status of the response, which is 200 if the request is allowed.
type decision struct {
	status  int
	expires time.Time
}

// WithAccessControl returns a handler that passes on the requests that the API server authenticates and authorizes.
func WithAccessControl(next http.Handler, client kubernetes.Interface) http.Handler {
	return &accessControl{client: client, next: next, decisions: map[requestKey]decision{}}
}

func (a *accessControl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusUnauthorized
	if token := tokenOf(r); token != "" {
		var err error
		if status, err = a.decide(r.Context(), token, strings.ToLower(r.Method), r.URL.Path); err != nil {
			failUnavailable(w, "authorize the request", err)
			return
		}
	}
	switch status {
	case http.StatusOK:
		a.next.ServeHTTP(w, r)
	case http.StatusUnauthorized: // the header makes a browser ask for a password
		w.Header().Set("WWW-Authenticate", `Basic realm="gshare: any name, and a token as the password", charset="UTF-8"`)
		http.Error(w, "Unauthorized: a token is required (kubectl create token)", status)
	default:
		http.Error(w, "Forbidden: the user of this token has no permission to "+strings.ToLower(r.Method)+" this path", status)
	}
}

// tokenOf returns the bearer token of a request, or else its basic-auth password, in which browsers can send a token.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// decide returns the access decision for a request, from the cache or from the API server.
func (a *accessControl) decide(ctx context.Context, token, verb, path string) (int, error) {
	key := requestKey(sha256.Sum256([]byte(token + "\x00" + verb + "\x00" + path)))
	a.mu.Lock()
	cached := a.decisions[key]
	a.mu.Unlock()
	if time.Now().Before(cached.expires) {
		return cached.status, nil
	}
	status, err := a.reviewToken(ctx, token, verb, path)
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.decisions) >= maxDecisions {
		clear(a.decisions)
	}
	a.decisions[key] = decision{status, time.Now().Add(decisionTTL)}
	return status, nil
}

// reviewToken asks the API server which user a token belongs to, and whether that user may send the request.
func (a *accessControl) reviewToken(ctx context.Context, token, verb, path string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	login, err := a.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("create TokenReview: %w", err)
	}
	if !login.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := login.Status.User
	spec := authorization.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorization.ExtraValue{},
		NonResourceAttributes: &authorization.NonResourceAttributes{Path: path, Verb: verb}}
	for name, value := range user.Extra {
		spec.Extra[name] = authorization.ExtraValue(value)
	}
	access, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("create SubjectAccessReview: %w", err)
	}
	if !access.Status.Allowed || access.Status.Denied {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// failUnavailable responds with 503 and logs the reason. The response omits it, because it may name objects that the page's service account can read.
func failUnavailable(w http.ResponseWriter, action string, err error) {
	klog.ErrorS(err, "failed to serve packing map", "action", action)
	http.Error(w, "cannot "+action+"; see the log of gshare web", http.StatusServiceUnavailable)
}
