package page

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/controlplane"
)

// served is the page at an address of its own, with the rights of the scheduler and no others.
func served(t *testing.T) string {
	t.Helper()
	o := Options{Address: "127.0.0.1:0", Kubeconfig: plane.Kubeconfig(controlplane.Scheduler)}
	address, err := o.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + address.String() + Path
}

// token is that of a service account of this name, which may do nothing yet.
func token(t *testing.T, name string) string {
	t.Helper()
	accounts := admin.CoreV1().ServiceAccounts("default")
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := accounts.CreateToken(t.Context(), name, &authentication.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// mayLook gives a service account the right of the documents.
func mayLook(t *testing.T, name string) {
	t.Helper()
	role := &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbac.PolicyRule{{NonResourceURLs: []string{Path}, Verbs: []string{"get"}}}}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: "default", Name: name}}}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// send makes one request over a connection that takes the page's own certificate.
func send(t *testing.T, method, url string, as func(*http.Request)) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	as(request)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// TestGuard: the API server's word decides, and whoever is not let through sees nothing of the cluster.
func TestGuard(t *testing.T) {
	url, stranger, viewer := served(t), token(t, "stranger"), token(t, "viewer")
	mayLook(t, "viewer")
	nobody := func(*http.Request) {}
	asNamed := func(name string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("X-Remote-User", name)
			r.Header.Set("X-Remote-Group", "system:masters")
		}
	}
	for name, test := range map[string]struct {
		method, path string
		as           func(*http.Request)
		want         int
	}{
		"nobody":                {"GET", "", nobody, 401},
		"an invented token":     {"GET", "", bearer("x.y.z"), 401},
		"a forged front":        {"GET", "", asNamed("admin"), 401},
		"an invented password":  {"GET", "", func(r *http.Request) { r.SetBasicAuth("admin", "admin") }, 401},
		"without the right":     {"GET", "", bearer(stranger), 403},
		"with the right":        {"GET", "", bearer(viewer), 200},
		"a browser":             {"GET", "", func(r *http.Request) { r.SetBasicAuth("me", viewer) }, 200},
		"one node":              {"GET", "?node=n1", bearer(viewer), 200},
		"another verb":          {"POST", "", bearer(viewer), 403},
		"another path":          {"GET", "/more", bearer(viewer), 403},
		"an administrator":      {"GET", "", bearer(plane.Config(controlplane.Admin).BearerToken), 200},
		"an administrator PUTs": {"PUT", "", bearer(plane.Config(controlplane.Admin).BearerToken), 405},
	} {
		answer, body := send(t, test.method, url+test.path, test.as)
		if answer.StatusCode != test.want {
			t.Errorf("%s: %s %s", name, answer.Status, body)
		}
		if shown := strings.Contains(body, "<h1>"); shown != (test.want == 200) {
			t.Errorf("%s: the page is shown: %v", name, shown)
		}
		if asks := answer.Header.Get("WWW-Authenticate") != ""; asks != (test.want == 401) {
			t.Errorf("%s: a password is asked for: %v", name, asks)
		}
	}
}
