package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	serving "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// apiServer answers reads as an API server does, and forwards ports of pods to a handler. Whatever else is asked is forbidden.
type apiServer struct {
	nodes   []v1.Node
	pods    []v1.Pod
	metrics http.Handler // behind every port of every pod

	functions []serving.GPUFunction // nil: serving is not installed
	events    []v1.Event

	daemonSets []apps.DaemonSet // nil: they cannot be read
}

// kubeconfig starts the server and gives a kubeconfig for it.
func (a *apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return writeFile(t, "kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "ml"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, server.URL))
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/portforward"):
		a.forward(w, r)
		return
	case path == "/version":
		answer = version.Info{GitVersion: "v1.37.1"}
	case path == "/api/v1/nodes":
		answer = v1.NodeList{Items: a.nodes}
	case path == "/api/v1/namespaces":
		answer = v1.NamespaceList{}
	case path == "/apis/policy/v1/poddisruptionbudgets":
		answer = policy.PodDisruptionBudgetList{}
	case strings.HasSuffix(path, "/pods"):
		answer = v1.PodList{Items: a.podsIn(strings.TrimSuffix(strings.TrimPrefix(path, "/api/v1/namespaces/"), "/pods"), r.URL.Query().Get("labelSelector"))}
	case strings.HasSuffix(path, "/events"):
		answer = v1.EventList{Items: a.events}
	case strings.HasPrefix(path, "/apis/serving.gshare.dev/"):
		a.serveFunctions(w, r)
		return
	case strings.HasSuffix(path, "/daemonsets") && a.daemonSets != nil:
		answer = apps.DaemonSetList{Items: a.daemonSets}
	case strings.HasSuffix(path, "/configmaps"):
		answer = v1.ConfigMapList{}
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonForbidden, Code: 403, Message: "you may not " + r.Method + " " + path}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// serveFunctions answers with the functions of a namespace or of all, or with one.
func (a *apiServer) serveFunctions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	namespace, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/serving.gshare.dev/v1alpha1/namespaces/"), "/gpufunctions")
	list := serving.GPUFunctionList{TypeMeta: metav1.TypeMeta{APIVersion: serving.APIVersion, Kind: serving.Kind + "List"}, Items: []serving.GPUFunction{}}
	for _, f := range a.functions {
		f.TypeMeta = metav1.TypeMeta{APIVersion: serving.APIVersion, Kind: serving.Kind}
		if name == "/"+f.Name && namespace == f.Namespace {
			_ = json.NewEncoder(w).Encode(f)
			return
		}
		if namespace == f.Namespace || strings.HasPrefix(namespace, "/") {
			list.Items = append(list.Items, f)
		}
	}
	if a.functions != nil && name == "" {
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	status := apierrors.NewNotFound(schema.GroupResource{Group: "serving.gshare.dev", Resource: "gpufunctions"}, strings.TrimPrefix(name, "/")).Status()
	if a.functions == nil {
		status.Message, status.Details = "the server could not find the requested resource", &metav1.StatusDetails{}
	}
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(status)
}

// podsIn lists those of a namespace, or of all, with a label.
func (a *apiServer) podsIn(namespace, selector string) (list []v1.Pod) {
	key, value, _ := strings.Cut(selector, "=")
	for _, pod := range a.pods {
		if (pod.Namespace == namespace || strings.HasPrefix(namespace, "/")) && (selector == "" || pod.Labels[key] == value) {
			list = append(list, pod)
		}
	}
	return list
}

// forward speaks SPDY only, so that clients have to fall back to it; each data stream is one request of HTTP.
func (a *apiServer) forward(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "no WebSockets here", http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	for {
		select {
		case s := <-streams:
			a.serve(s)
		case <-connection.CloseChan():
			return
		}
	}
}

func (a *apiServer) serve(s httpstream.Stream) {
	defer s.Close()
	if s.Headers().Get(v1.StreamType) != v1.StreamTypeData {
		return
	}
	request, err := http.ReadRequest(bufio.NewReader(s))
	if err != nil {
		return
	}
	answer := httptest.NewRecorder()
	a.metrics.ServeHTTP(answer, request)
	_ = answer.Result().Write(s)
}
