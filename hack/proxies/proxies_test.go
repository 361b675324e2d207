package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestKnative sends a request through activator and queue-proxy.
func TestKnative(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer server.Close()
	queueProxy, err := start("queue-proxy", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	activator, err := start("activator", queueProxy)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+activator+"/", strings.NewReader("input"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "plain.default.svc.cluster.local"
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); answer.StatusCode != 200 || string(text) != "input" || err != nil {
		t.Errorf("status %d, %q, %v", answer.StatusCode, text, err)
	}
}

// TestBatcher sends requests through KServe's batcher, which joins some of them.
func TestBatcher(t *testing.T) {
	var batches atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		batches.Add(1)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, strings.Replace(string(body), "instances", "predictions", 1))
	}))
	defer server.Close()
	address, err := start("batcher", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			answer, err := (&http.Client{Timeout: time.Minute}).Post("http://"+address+"/v1/models/m:predict", "application/json", strings.NewReader(fmt.Sprintf(`{"instances":[[%d]]}`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if text, err := io.ReadAll(answer.Body); !strings.Contains(string(text), fmt.Sprintf("[[%d]]", i)) || err != nil {
				t.Errorf("request %d: %q, %v", i, text, err)
			}
		})
	}
	clients.Wait()
	if n := batches.Load(); n > 40 {
		t.Errorf("64 requests in %d batches", n)
	}
}
