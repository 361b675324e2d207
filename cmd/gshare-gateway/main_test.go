package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/identity"
	"github.com/gshare-dev/gshare/serving/report"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"argument":   {"functions.yaml"},
		"flag":       {"--port=80"},
		"kubeconfig": {"--kubeconfig=/nowhere"},
		"no cluster": {},
		"listen":     {"--kubeconfig=" + kubeconfig(t, "http://127.0.0.1:1"), "--listen=nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			cmd := command()
			cmd.SetArgs(args)
			if err := cmd.ExecuteContext(t.Context()); cli.ExitCode(err) != 2 {
				t.Errorf("error %v, want a usage error", err)
			}
		})
	}
}

// TestNoCertificates: without a folder of certificates no port is opened that would need one, and none is looked for in the working directory.
func TestNoCertificates(t *testing.T) {
	for tls, listens := range map[string]bool{"": false, t.TempDir(): true} {
		o := options{tls: tls, report: "127.0.0.1:0", controller: "gshare-system/gshare-controller"}
		r, err := o.newReporting(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if (r.listener != nil) != listens {
			t.Errorf("with --tls=%q it listens: %t, want %t", tls, r.listener != nil, listens)
		}
		r.serve(t.Context(), report.New(gateway.New(gateway.Config{}), "a"))()
	}
}

// TestEnd sends requests to a server before and after it is told to end.
func TestEnd(t *testing.T) {
	type answer struct {
		status int
		closes bool
	}
	// get sends a request that takes a while, over a connection of its own.
	get := func(l *bufconn.Listener, takes time.Duration) (answer, error) {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }}
		defer transport.CloseIdleConnections()
		r, err := (&http.Client{Transport: transport}).Get("http://gateway/" + takes.String())
		if err != nil {
			return answer{}, err
		}
		defer r.Body.Close()
		_, err = io.Copy(io.Discard, r.Body)
		return answer{r.StatusCode, r.Close}, err
	}
	for name, test := range map[string]struct {
		grace, takes, ended time.Duration
		brokenOff           bool
	}{
		"idle":               {30 * time.Second, 0, 5 * time.Second, false},
		"a request":          {30 * time.Second, 20 * time.Second, 20 * time.Second, false},
		"a request too long": {30 * time.Second, time.Minute, 30 * time.Second, true},
		"short grace":        {2 * time.Second, 0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					takes, _ := time.ParseDuration(r.URL.Path[1:])
					time.Sleep(takes)
					w.WriteHeader(http.StatusAccepted)
				})}, test.grace, slog.New(slog.DiscardHandler))
				ctx, stop := context.WithCancel(t.Context())
				l := bufconn.Listen(1 << 10)
				ended := make(chan error, 1)
				go func() { ended <- s.serve(ctx, l) }()
				if a, err := get(l, 0); err != nil || a != (answer{202, false}) {
					t.Errorf("before the end: %+v, error %v", a, err)
				}
				long := make(chan error, 1)
				go func() { _, err := get(l, test.takes); long <- err }()
				synctest.Wait()
				begin := time.Now()
				stop()
				time.Sleep(500 * time.Millisecond)
				if !s.ending.Load() {
					t.Error("the gateway is ready although it stops")
				}
				if a, err := get(l, 0); err != nil || a != (answer{202, true}) {
					t.Errorf("after SIGTERM: %+v, error %v, want an answer that closes its connection", a, err)
				}
				err := <-ended
				if took := time.Since(begin); err != nil || took < test.ended || took > test.ended+time.Second { // net/http looks now and then
					t.Errorf("ended after %v with %v, want after %v", took, err, test.ended)
				}
				if err := <-long; (err != nil) != test.brokenOff {
					t.Errorf("the request ended with %v", err)
				}
				if _, err := get(l, 0); err == nil {
					t.Error("a request is accepted after the end")
				}
				time.Sleep(test.takes) // of the handler
			})
		})
	}
}

// TestGateway serves a function of a small API server, on real ports, until it is told to end while a request is under way.
func TestGateway(t *testing.T) {
	began, finish := make(chan struct{}, 1), make(chan struct{})
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- struct{}{}
			<-finish
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("a replica gets the token of a caller")
		}
		fmt.Fprint(w, "answer")
	}))
	defer replica.Close()
	cluster := httptest.NewServer(apiServer(replica.Listener.Addr().(*net.TCPAddr).Port))
	defer cluster.Close()
	defer cluster.CloseClientConnections()

	requests, reports, metrics, others := freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)
	t.Setenv("POD_NAME", "gateway-1")
	t.Setenv("POD_NAMESPACE", "models")
	cmd := command()
	tlsFiles, connect := newTLS(t)
	files := identity.NewFiles(tlsFiles)
	cmd.SetArgs([]string{"--listen", requests, "--report", reports, "--tls", tlsFiles, "--metrics", metrics, "--peers", others, "--kubeconfig", kubeconfig(t, cluster.URL), "--termination-grace=30s"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()

	until(t, "ready", func() bool { status, _ := get(t, metrics, "", "/readyz"); return status == 200 })
	if status, text := get(t, requests, "chat.models", "/"); status != 200 || text != "answer" {
		t.Errorf("a request got status %d, %q", status, text)
	}
	if status, _ := get(t, requests, "absent.models", "/"); status != 404 {
		t.Errorf("a request to no function got status %d, want 404", status)
	}
	until(t, "metrics count the request", func() bool { // after its client has the answer
		_, text := get(t, metrics, "", "/metrics")
		return strings.Contains(text, `gshare_gateway_requests_total{code="200",function="chat",namespace="models"} 1`)
	})
	if status, text := getTLS(t, others, "/ping", files.ToPeers()); status != 200 || text != `{"gateway":"gateway-1","leaving":false}`+"\n" {
		t.Errorf("a ping got status %d, %q", status, text)
	}
	if status, text := getTLS(t, others, "/ping", &tls.Config{InsecureSkipVerify: true}); status != 0 || !strings.Contains(text, "certificate") {
		t.Errorf("a ping of a stranger got status %d, %q", status, text)
	}
	if err := report.Watch(t.Context(), connect(reports, "a-pod"), func(report.Report) {}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("somebody else reads the load: %v", err)
	}
	if conn, err := grpc.NewClient(reports, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	} else if err := report.Watch(t.Context(), conn, func(report.Report) {}); status.Code(err) != codes.Unavailable {
		t.Errorf("the load is reported without TLS: %v", err)
	} else {
		conn.Close()
	}
	conn := connect(reports, "gshare-controller")
	var last report.Function
	first, watched := make(chan report.Report, 1), make(chan error, 1)
	go func() {
		watched <- report.Watch(t.Context(), conn, func(r report.Report) {
			for _, f := range r.Functions {
				last = f
			}
			select {
			case first <- r:
			default:
			}
		})
	}()
	var r report.Report
	select {
	case r = <-first:
	case err := <-watched:
		t.Fatalf("no report: %v", err)
	}
	if r.Gateway != "gateway-1" || len(r.Functions) != 1 || r.Functions[0].Load.Replicas != 1 {
		t.Errorf("the first report is %+v", r)
	}

	slow := make(chan string, 1)
	go func() { _, text := get(t, requests, "chat.models", "/slow"); slow <- text }()
	<-began
	stop()
	until(t, "not ready", func() bool { status, _ := get(t, metrics, "", "/readyz"); return status == 503 })
	until(t, "leaving", func() bool {
		_, text := getTLS(t, others, "/ping", files.ToPeers())
		return strings.Contains(text, `"leaving":true`)
	})
	if status, _ := get(t, metrics, "", "/healthz"); status != 200 {
		t.Errorf("not healthy while it ends, status %d", status)
	}
	until(t, "closed", func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", requests)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(finish)
	if text := <-slow; text != "answer" {
		t.Errorf("the last request got %q", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-watched; err != nil || last.Load.Answered != 2 {
		t.Errorf("the last report is %+v, error %v, want both answers in it", last, err)
	}
}

// apiServer answers lists and watches with a function and its pod, which listens on a port of this machine.
func apiServer(port int) http.HandlerFunc {
	f := &api.GPUFunction{TypeMeta: metav1.TypeMeta{APIVersion: api.APIVersion, Kind: api.Kind}, ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "chat", UID: "function"}}
	f.Spec.SLO.Latency = "1m"
	f.Spec.Access.Namespaces = []string{"clients"}
	f.Spec.Template.Spec.Containers = []v1.Container{{Name: "server", Image: "example.com/chat"}}
	fp := &api.FaSTPod{TypeMeta: metav1.TypeMeta{APIVersion: api.APIVersion, Kind: api.FaSTPodKind}, ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "chat-1",
		UID: "fastpod", OwnerReferences: []metav1.OwnerReference{{Kind: api.Kind, Name: "chat", UID: "function", Controller: new(true)}}}}
	objects := map[string]any{"gpufunctions": f, "fastpods": fp, "pods": &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "chat-1", Labels: map[string]string{api.LabelFunction: "chat", api.LabelInstance: "1"},
			OwnerReferences: []metav1.OwnerReference{{Kind: api.FaSTPodKind, Name: "chat-1", UID: "fastpod", Controller: new(true)}}},
		Spec:   v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{Name: kube.ServerPortName, ContainerPort: int32(port)}}}}},
		Status: v1.PodStatus{PodIP: "127.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}}
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			reviewToken(w, r)
			return
		}
		object := objects[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		if r.URL.Query().Get("watch") == "" {
			kind := object.(runtime.Object).GetObjectKind().GroupVersionKind()
			_ = encoder.Encode(map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": metav1.ListMeta{ResourceVersion: "1"}, "items": []any{object}})
			return
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			_ = encoder.Encode(map[string]any{"type": "ADDED", "object": object})
			_ = encoder.Encode(map[string]any{"type": "BOOKMARK", "object": &v1.Pod{ObjectMeta: metav1.ObjectMeta{
				ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}}})
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// reviewToken answers that a token is of the service account that its last part names.
func reviewToken(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // protobuf
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review := object.(*authentication.TokenReview)
	review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	name := review.Spec.Token[strings.LastIndex(review.Spec.Token, ".")+1:]
	namespace := map[bool]string{true: "clients", false: "gshare-system"}[name == "caller"]
	review.Status = authentication.TokenReviewStatus{
		Authenticated: true, User: authentication.UserInfo{Username: "system:serviceaccount:" + namespace + ":" + name}, Audiences: review.Spec.Audiences,
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// tokenOf returns a token that reviewToken takes for one of an account.
func tokenOf(account, audience string) string {
	payload := fmt.Sprintf(`{"aud": %q, "exp": %d}`, audience, time.Now().Add(time.Hour).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + "." + account
}

// newTLS returns a folder with the certificate of a gateway, and a function that connects to the gateway as a service account.
func newTLS(t *testing.T) (folder string, connect func(address, account string) *grpc.ClientConn) {
	t.Helper()
	authorities, err := identity.Authorities{}.Renew(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c, err := authorities.Issue("gateway", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	write := func(name string, text []byte) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("tls.crt", c.Chain)
	write("tls.key", c.Key)
	write("ca.crt", authorities.Certificates())
	return folder, func(address, account string) *grpc.ClientConn {
		token := write(account, []byte(tokenOf(account, identity.AudienceReports)))
		conn, err := grpc.NewClient(address, grpc.WithPerRPCCredentials(identity.TokenFile(token)),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: authorities.Pool(), ServerName: "gateway", MinVersion: tls.VersionTLS13})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// getTLS returns the status and the body of an answer over TLS, or status 0 and the error.
func getTLS(t *testing.T, address, path string, config *tls.Config) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// TestAlone: without --tls there is no port for other gateways, whatever the flags say.
func TestAlone(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "models")
	o := options{peers: "127.0.0.1:0", peerSelector: "app=gshare-gateway"}
	g, err := o.newGateways(t.Context(), &rest.Config{}, slog.New(slog.DiscardHandler))
	if err != nil || g.peers != nil || g.listener != nil || g.watch != (noWatch{}) {
		t.Errorf("%+v, error %v", g, err)
	}
	g.leave()
	if err := g.serve(t.Context(), nil, 0, nil); err != nil {
		t.Error(err)
	}
}

// kubeconfig returns the name of a file that leads to an API server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters: [{name: test, cluster: {server: " + strconv.Quote(server) +
		"}}]\ncontexts: [{name: test, context: {cluster: test}}]\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0") // no outgoing connection takes its port until it is used: those come from 127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// get returns the status and the body of an answer; status 0 if there is none.
func get(t *testing.T, address, host, path string) (int, string) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Host = host
	if host != "" {
		r.Header.Set("Authorization", "Bearer "+tokenOf("caller", identity.AudienceFunctions))
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil {
		t.Error(err)
	}
	return answer.StatusCode, body.String()
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
