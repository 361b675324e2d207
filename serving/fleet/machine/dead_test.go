package machine

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// TestDeadEngine: a server whose engine is dead answers 500 to all requests, at once, and says that it is not ready. It gets no more requests then, and the
// other replica gets them, until it says that it is ready again.
func TestDeadEngine(t *testing.T) { // not parallel: parallel tests need their ports to be closed
	w := newWorld(t)
	dead := t.TempDir()
	functions, err := api.Decode([]byte(fmt.Sprintf(`
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: f}
spec:
  slo: {latency: 1s}
  scaling: {minReplicas: 2, maxReplicas: 2, requestsPerSecond: 1}
  resources: {share: {sm: 24, memory: 1525Mi}}
  template:
    spec:
      containers:
      - command: [%q]
        env: [{name: %s, value: "1"}, {name: %s, value: %q}]
        readinessProbe: {httpGet: {path: "/ready?x=1"}}
`, os.Args[0], asServer, deadFiles, dead)))
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Config{})
	f, err := fleet.New(fleet.Config{Gateways: g, Platform: w.Machine, Log: slog.New(slog.DiscardHandler)}, functions)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	defer func() { cancel(); <-done }()

	ask := func() (status int, port string) {
		answer := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://f/", nil)
		g.ServeHTTP(answer, r)
		return answer.Code, answer.Header().Get("Server-Port")
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	replicas := func(n int) func() bool {
		return func() bool { return g.Load(gateway.FunctionName{Namespace: "default", Name: "f"}).Replicas == n }
	}
	await("there are never two replicas", replicas(2))
	_, port := ask()
	engine := filepath.Join(dead, port)
	if err := os.WriteFile(engine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await("a replica that is not ready keeps its place", replicas(1))
	for range 20 {
		if status, other := ask(); status != 200 || other == port {
			t.Errorf("status %d of port %s, after %s was not ready", status, other, port)
		}
	}
	if err := os.Remove(engine); err != nil {
		t.Fatal(err)
	}
	await("a replica that is ready again gets no place", replicas(2))
	await("a replica that is ready again gets no requests", func() bool { status, again := ask(); return status == 200 && again == port })
}
