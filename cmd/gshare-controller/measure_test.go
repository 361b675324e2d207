package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/profiles"
)

// TestMeasure runs the command of a trial's client as its pod does.
func TestMeasure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer server.Close()
	job := profiler.Job{
		Version: profiler.JobVersion, Address: strings.TrimPrefix(server.URL, "http://"), Request: profiler.Request{Method: "GET", Path: "/"}, Batch: 1,
		Load: profiler.Load{SLO: time.Second, Objective: 0.99, Bound: time.Second, Concurrency: 1},
	}
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(profiles.JobVariable, string(text))
	result := filepath.Join(t.TempDir(), "termination-log")
	cmd := command()
	cmd.SetArgs([]string{"measure", "--result", result})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	message, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := profiler.DecodeOutcome(string(message), &job); err != nil || !strings.Contains(o.Failed, "418") {
		t.Errorf("%s: %v", message, err)
	}
	t.Setenv(profiles.JobVariable, "{}")
	cmd = command()
	cmd.SetArgs([]string{"measure", "--result", result})
	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Error("no error without a job")
	}
}

func TestOwnImage(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gshare-system", Name: "a"}, Spec: v1.PodSpec{Containers: []v1.Container{{Image: "registry.example/gshare-controller:v1"}}}}
	o := &ownImage{clients: fake.NewClientset(pod), namespace: "gshare-system", name: "a"}
	for range 2 {
		if image, err := o.get(t.Context()); err != nil || image != "registry.example/gshare-controller:v1" {
			t.Errorf("%s, %v", image, err)
		}
	}
	if _, err := (&ownImage{}).get(t.Context()); err == nil || !strings.Contains(err.Error(), "--profile-image") {
		t.Errorf("error %v", err)
	}
	if image, err := (&ownImage{known: "x"}).get(t.Context()); err != nil || image != "x" {
		t.Errorf("%s, %v", image, err)
	}
}
