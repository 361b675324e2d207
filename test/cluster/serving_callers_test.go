package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/identity"
)

// refusesCallers: without "*" in its access list, the function accepts requests from pods of its namespace and with tokens of
// its namespace's service accounts, and no others.
func (s *served) refusesCallers(t *testing.T) {
	open := s.function(t).Spec.Access.Namespaces
	allow := func(namespaces string) {
		s.kubectl(t, "patch", "gpufunction", "resnet50", "--type=merge", "-p", `{"spec": {"access": {"namespaces": `+namespaces+`}}}`)
	}
	allow("[]")
	defer allow(fmt.Sprintf("[%q]", open[0]))
	node := s.Nodes[0].Machine.Dial
	inPod := func(namespace, label, value string) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			pods := s.pods(t, namespace, label, value)
			if len(pods) == 0 {
				return nil, errors.New("no pods")
			}
			pids := pidsOf(t, &pods[0])
			if len(pids) == 0 {
				return nil, errors.New("pod " + pods[0].Name + " has no processes")
			}
			return dialFrom(pids[0])(ctx, network, address)
		}
	}
	other := inPod("gshare-system", "app", "gshare-controller")
	s.wait(t, "refused", func() bool { status, _ := s.call(t, node, ""); return status == http.StatusForbidden })
	for name, test := range map[string]struct {
		dial   func(context.Context, string, string) (net.Conn, error)
		token  string
		status int
		text   string
	}{
		"node":                     {node, "", 403, "kubectl create token ACCOUNT --namespace default --audience serving.gshare.dev"},
		"pod of its namespace":     {inPod("default", api.LabelFunction, "resnet50"), "", 200, ""},
		"pod of another namespace": {other, "", 404, "that callers of namespace gshare-system may call"},
		"token":                    {node, s.tokenFor(t, "default", identity.AudienceFunctions), 200, ""},
		"token of another account": {node, s.tokenFor(t, "kube-system", identity.AudienceFunctions), 404, "that callers of namespace kube-system may call"},
		"token for other use":      {node, s.tokenFor(t, "default", identity.AudienceReports), 403, "kubectl create token"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, text := s.call(t, test.dial, test.token); status != test.status || !strings.Contains(text, test.text) {
				t.Errorf("%d %s, want %d %s", status, text, test.status, test.text)
			}
		})
	}
	allow(`["gshare-system"]`)
	s.wait(t, "allowed", func() bool { status, _ := s.call(t, other, ""); return status == http.StatusOK })
	s.kubectl(t, "get", "networkpolicy", "gshare-resnet50")
}

// call sends a request for the function to a gateway, and returns the status and the body of the response. It repeats the request while the response is
// 503, as it is when the API server takes too long to review the token.
func (s *served) call(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), token string) (status int, text string) {
	t.Helper()
	s.until(t, "response other than 503", func() (err error) {
		status, text, err = s.callOnce(t, dial, token)
		if err == nil && status == http.StatusServiceUnavailable {
			err = errors.New(text)
		}
		return err
	})
	return status, text
}

func (s *served) callOnce(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), token string) (int, string, error) {
	t.Helper()
	gateway := s.pods(t, "gshare-system", "app", "gshare-gateway")[0]
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+gateway.Status.PodIP+":8080/v2/health/ready", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "resnet50.default"
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// tokenFor creates a service account in a namespace, and returns a token for it.
func (s *served) tokenFor(t *testing.T, namespace, audience string) string {
	t.Helper()
	accounts := s.Client().CoreV1().ServiceAccounts(namespace)
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "caller"}}
	if _, err := accounts.Get(s.ctx, account.Name, metav1.GetOptions{}); err != nil {
		if _, err := accounts.Create(s.ctx, account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: []string{audience}}}
	answer, err := accounts.CreateToken(s.ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// dialFrom connects from within the network namespace of a process.
func dialFrom(pid int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (connection net.Conn, err error) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread() // the locked thread ends with the goroutine
			var process int
			if process, err = unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK); err != nil {
				return
			}
			defer unix.Close(process)
			if err = unix.Setns(process, unix.CLONE_NEWNET); err != nil {
				return
			}
			connection, err = new(net.Dialer).DialContext(ctx, network, address)
		}()
		<-ended
		return connection, err
	}
}
