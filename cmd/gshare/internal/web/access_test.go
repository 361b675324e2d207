package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"

	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/install/manifest"
)

// served serves the page with the permissions of manifests/web and no others, and returns its URL without the path.
func served(t *testing.T) string {
	t.Helper()
	install(t)
	config := plane.Config(access.Admin)
	config.BearerToken = tokenFor(t, "gshare-system", "gshare-web")
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		ended <- Serve(ctx, kubernetes.NewForConfigOrDie(config), Options{Address: "127.0.0.1:0"}, func(a net.Addr) { address <- a })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-address:
		return "https://" + a.String()
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return ""
	}
}

// install creates the service account of manifests/web and its roles, unless an earlier test has.
func install(t *testing.T) {
	t.Helper()
	objects, err := manifest.Build("../../../..", "manifests/web")
	if err != nil {
		t.Fatal(err)
	}
	system := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gshare-system"}}
	_, err = admin.CoreV1().Namespaces().Create(t.Context(), system, metav1.CreateOptions{})
	for _, o := range objects {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		switch o.GetKind() {
		case "ServiceAccount":
			_, err = admin.CoreV1().ServiceAccounts(o.GetNamespace()).Create(t.Context(), typed[v1.ServiceAccount](t, o), metav1.CreateOptions{})
		case "ClusterRole":
			_, err = admin.RbacV1().ClusterRoles().Create(t.Context(), typed[rbac.ClusterRole](t, o), metav1.CreateOptions{})
		case "ClusterRoleBinding":
			_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), typed[rbac.ClusterRoleBinding](t, o), metav1.CreateOptions{})
		}
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func typed[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	var object T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &object); err != nil {
		t.Fatal(err)
	}
	return &object
}

// token creates a service account without permissions and returns a token for it.
func token(t *testing.T, name string) string {
	t.Helper()
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return tokenFor(t, "default", name)
}

func tokenFor(t *testing.T, namespace, account string) string {
	t.Helper()
	request, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authentication.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// allow binds a service account to the role of manifests/web for users of the page.
func allow(t *testing.T, name string) {
	t.Helper()
	binding := &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "gshare-map-viewer"},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: "default", Name: name}}}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:default:" + name
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // the authorizer learns of the binding later
		review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: user, NonResourceAttributes: &authorization.NonResourceAttributes{Path: Path, Verb: "get"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not allowed to get the page", user)
		}
	}
}

// send makes one request, without verifying the self-signed certificate.
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

// TestAccess: the API server decides who sees the page, and others see nothing of the cluster.
func TestAccess(t *testing.T) {
	base, stranger, viewer := served(t), token(t, "stranger"), token(t, "viewer")
	allow(t, "viewer")
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
		"no token":              {"GET", "", nobody, 401},
		"an invalid token":      {"GET", "", bearer("x.y.z"), 401},
		"a forged proxy header": {"GET", "", asNamed("admin"), 401},
		"an invalid password":   {"GET", "", func(r *http.Request) { r.SetBasicAuth("admin", "admin") }, 401},
		"without permission":    {"GET", "", bearer(stranger), 403},
		"with permission":       {"GET", "", bearer(viewer), 200},
		"a browser":             {"GET", "", func(r *http.Request) { r.SetBasicAuth("me", viewer) }, 200},
		"one node":              {"GET", "?node=n1", bearer(viewer), 200},
		"another verb":          {"POST", "", bearer(viewer), 403},
		"another path":          {"GET", "/more", bearer(viewer), 403},
		"an administrator":      {"GET", "", bearer(plane.Config(access.Admin).BearerToken), 200},
		"an administrator PUTs": {"PUT", "", bearer(plane.Config(access.Admin).BearerToken), 405},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second answer is cached
				answer, body := send(t, test.method, base+Path+test.path, test.as)
				if answer.StatusCode != test.want {
					t.Errorf("%s %s", answer.Status, body)
				}
				if shown := strings.Contains(body, "<h1>"); shown != (test.want == 200) {
					t.Errorf("the page is shown: %v", shown)
				}
				if asks := answer.Header.Get("WWW-Authenticate") != ""; asks != (test.want == 401) {
					t.Errorf("a password is requested: %v", asks)
				}
			}
		})
	}
	t.Run("probe", func(t *testing.T) {
		if answer, body := send(t, "GET", base+ProbePath, nobody); answer.StatusCode != 200 || body != "ok\n" {
			t.Errorf("%s %q", answer.Status, body)
		}
	})
}

// TestReviewFails: an API server that cannot decide lets nobody in, and the failure is not cached.
func TestReviewFails(t *testing.T) {
	client := fake.NewClientset()
	broken := true
	client.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken {
			return true, nil, errors.New("secret reason")
		}
		return true, &authentication.TokenReview{Status: authentication.TokenReviewStatus{Authenticated: true}}, nil
	})
	allowed := authorization.SubjectAccessReviewStatus{Allowed: true}
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorization.SubjectAccessReview{Status: allowed}, nil
	})
	h := handler(client)
	get := func(token string) (int, string) {
		answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, Path, nil)
		bearer(token)(request)
		h.ServeHTTP(answer, request)
		return answer.Code, answer.Body.String()
	}
	if code, body := get("a"); code != 503 || strings.Contains(body, "secret") {
		t.Errorf("%d %s", code, body)
	}
	broken = false
	if code, _ := get("a"); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
	allowed.Denied = true
	if code, _ := get("b"); code != 403 {
		t.Errorf("denied: %d", code)
	}
}

// TestCertificate: a renewed certificate is used for the next connection, and a missing one is an error at the start.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	o := Options{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	if _, err := o.certificate(); err == nil {
		t.Error("a missing file is accepted")
	}
	var served [][]byte
	var source func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	for range 2 {
		crt, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{o.CertFile: crt, o.KeyFile: key} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if source == nil {
			if source, err = o.certificate(); err != nil {
				t.Fatal(err)
			}
		}
		pair, err := source(nil)
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, pair.Certificate[0])
	}
	if bytes.Equal(served[0], served[1]) {
		t.Error("the old certificate is served")
	}
}
