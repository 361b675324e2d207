package page

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// remembered is how long the API server's answers are.
const remembered = 10 * time.Second

// Guard lets through whom the API server knows (TokenReview) and lets do what the request does (SubjectAccessReview). The others
// get 401 and 403. It is Kubernetes' own way to guard /metrics, but nobody is anonymous.
func Guard(next http.Handler, client kubernetes.Interface) (http.Handler, error) {
	who, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: false},
		TokenAccessReviewClient:  client.AuthenticationV1(),
		TokenAccessReviewTimeout: remembered,
		WebhookRetryBackoff:      options.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                 remembered,
	}.New()
	if err != nil {
		return nil, err
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             remembered,
		DenyCacheTTL:              remembered,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, err
	}
	guarded := filters.WithAuthorization(next, may, scheme.Codecs)
	guarded = filters.WithAuthentication(guarded, who, http.HandlerFunc(ask), nil, nil)
	guarded = filters.WithRequestInfo(guarded, &request.RequestInfoFactory{})
	return passwordIsToken(guarded), nil
}

// ask makes a browser ask for a password.
func ask(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("WWW-Authenticate", `Basic realm="gshare: any name, and a token as the password", charset="UTF-8"`)
	http.Error(w, "a token is needed: kubectl create token", http.StatusUnauthorized)
}

// passwordIsToken takes what a browser can send for what the API server can judge.
func passwordIsToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, token, ok := r.BasicAuth(); ok {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+token)
		}
		next.ServeHTTP(w, r)
	})
}
