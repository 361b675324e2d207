package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

func quantities(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// whatifServer answers lists of nodes and pods, and nothing else, as an API server does: two A100 nodes of four GPUs with six
// pods of one GPU each.
func whatifServer(t *testing.T) (kubeconfig string) {
	var nodes v1.NodeList
	var pods v1.PodList
	for _, name := range []string{"a", "b"} {
		has := quantities("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "4")
		labels := map[string]string{"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.count": "4", "nvidia.com/gpu.memory": "81920"}
		nodes.Items = append(nodes.Items, v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: v1.NodeStatus{Capacity: has, Allocatable: has},
		})
		for i := range 3 {
			pods.Items = append(pods.Items, v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: fmt.Sprint(name, i)},
				Spec: v1.PodSpec{NodeName: name, Containers: []v1.Container{{
					Name: "main", Resources: v1.ResourceRequirements{Limits: quantities("nvidia.com/gpu", "1")},
				}}},
				Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
					Name: "main", ImageID: fmt.Sprint("registry.example/m@sha256:", name),
				}}},
			})
		}
	}
	return listServer(t, map[string]any{"/api/v1/nodes": nodes, "/api/v1/pods": pods})
}

// listServer answers the lists by their paths, and nothing else.
func listServer(t *testing.T, answers map[string]any) (kubeconfig string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok || r.Method != http.MethodGet {
			t.Errorf("whatif asked for %s %s", r.Method, r.URL)
			http.Error(w, "", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return writeFile(t, "kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, server.URL))
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func runWhatif(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"whatif"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestWhatif(t *testing.T) {
	kubeconfig := whatifServer(t)
	usage := writeFile(t, "usage.csv", "namespace,pod,sm_percent,memory_mib\nml,a0,90,1000\nml,a1,80,1000\n")
	large := writeFile(t, "large.yaml", profileOf("large", "mirror.example/m@sha256:a", 95))
	small := writeFile(t, "small.json", `{"apiVersion": "v1", "kind": "List", "items": [`+profileOf("small", "registry.example/m@sha256:b", 10)+`]}`)
	for name, c := range map[string]struct {
		args   []string
		needed int
	}{
		"halves":   {nil, 3},
		"quarters": {[]string{"--assume", "sm=25,mem=25%"}, 2},
		"wholes":   {[]string{"--assume", "sm=100,mem=100%"}, 6},
		"measured": {[]string{"--usage", usage}, 4},
		"profiled": {[]string{"--profiles", large + "," + small}, 4},
		"both":     {[]string{"--profiles", large, "--profiles", small, "--usage", usage, "--assume", "sm=100,mem=100%"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			picture := filepath.Join(t.TempDir(), "whatif.svg")
			text, err := runWhatif(t, append(c.args, "--kubeconfig", kubeconfig, "-o", "json", "--plot", picture)...)
			if err != nil {
				t.Fatal(err)
			}
			var got comparison
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			if got.Total.HeldGPUs != 6 || got.Total.NeededGPUs != c.needed || len(got.Rows) != 1 || got.Assumed == "" {
				t.Errorf("%+v, want 6 GPUs held and %d needed", got, c.needed)
			}
			if svg, err := os.ReadFile(picture); err != nil || !bytes.Contains(svg, []byte("A100")) {
				t.Errorf("the picture does not name the pool (%v)", err)
			}
		})
	}
	profiled, err := runWhatif(t, "--kubeconfig", kubeconfig, "--profiles", small)
	if err != nil || !strings.Contains(profiled, "* containers with one whole GPU, counted by GPUProfile ml/small, sm=10,quota=100,mem=1024: 3\n") {
		t.Errorf("%v, with profiles:\n%s", err, profiled)
	}
	text, err := runWhatif(t, "--kubeconfig", kubeconfig)
	if err != nil || !strings.Contains(text, "A100") || !strings.Contains(text, "50%") {
		t.Errorf("%v, table:\n%s", err, text)
	}
}

// TestWhatifSaysWhatItCannot: with a pod that holds GPUs in an unknown way, no percentage is printed, and the pod is.
func TestWhatifSaysWhatItCannot(t *testing.T) {
	has := quantities("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "10")
	nodes := v1.NodeList{Items: []v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Capacity: has, Allocatable: has}}}}
	var pods v1.PodList
	for i := range 4 {
		pods.Items = append(pods.Items, v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: fmt.Sprint("p", i)},
			Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: quantities("nvidia.com/gpu", "1")}}}}})
	}
	kubeconfig := listServer(t, map[string]any{"/api/v1/nodes": nodes, "/api/v1/pods": pods})
	text, err := runWhatif(t, "--kubeconfig", kubeconfig)
	if err != nil || strings.Contains(strings.SplitAfter(text, "\n")[1], "%") || !strings.Contains(text, "* not understood, so there is no percentage: node n: no label") {
		t.Errorf("%v, printed:\n%s", err, text)
	}
	if text, err = runWhatif(t, "--kubeconfig", kubeconfig, "--whole-gpus"); err != nil || !strings.Contains(text, "50%") || strings.Contains(text, "not understood") {
		t.Errorf("%v, with --whole-gpus:\n%s", err, text)
	}
	if text, err = runWhatif(t, "--kubeconfig", kubeconfig, "-o", "json"); err != nil || !strings.Contains(text, `"unknown": [`) {
		t.Errorf("%v, as JSON:\n%s", err, text)
	}
}

// profileOf returns a complete GPUProfile of an image, as JSON, so that it can be put into a list.
func profileOf(name, image string, sm int) string {
	return fmt.Sprintf(`{"apiVersion": "serving.gshare.dev/v1alpha1", "kind": "GPUProfile", "metadata": {"name": %q, "namespace": "ml"},
		"spec": {"functionRef": {"name": "f"}}, "status": {"conditions": [{"type": "Complete", "status": "True"}], "fingerprint": {"image": %q, "model": "A100"},
		"recommended": {"sm": %d, "quota": 100, "memory": "1Gi", "maxBatch": 1, "requestsPerSecond": 5}}}`, name, image, sm)
}

func TestWhatifUsageErrors(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	server := whatifServer(t)
	for name, tc := range map[string]struct {
		args []string
		want string // in the error
	}{
		"no kubeconfig":        {nil, "no kubeconfig"},
		"kubeconfig not there": {[]string{"--kubeconfig", "not/there"}, "not/there"},
		"unknown context":      {[]string{"--kubeconfig", server, "--context", "x"}, `"x"`},
		"output":               {[]string{"--kubeconfig", server, "-o", "xml"}, "xml"},
		"plot":                 {[]string{"--kubeconfig", server, "--plot", "x.gif"}, "x.gif"},
		"assumption":           {[]string{"--kubeconfig", server, "--assume", "sm=0"}, "--assume"},
		"usage not there":      {[]string{"--kubeconfig", server, "--usage", "not/there"}, "--usage"},
		"usage malformed":      {[]string{"--kubeconfig", server, "--usage", writeFile(t, "u", "x")}, "--usage"},
		"profiles not there":   {[]string{"--kubeconfig", server, "--profiles", "not/there"}, "--profiles"},
		"profiles malformed":   {[]string{"--kubeconfig", server, "--profiles", writeFile(t, "p", "x")}, "--profiles"},
		"GPU memory":           {[]string{"--kubeconfig", server, "--gpu-memory", "0"}, "--gpu-memory"},
		"moves":                {[]string{"--kubeconfig", server, "--rebalance", "--moves", "0"}, "--moves"},
		"chart nowhere":        {[]string{"--kubeconfig", server, "--plot", "/nowhere/x.svg"}, "--plot: stat /nowhere"},
		"chart of moves":       {[]string{"--kubeconfig", server, "--rebalance", "--plot", "x.svg"}, "--plot"},
		"moves, mixed":         {[]string{"--kubeconfig", server, "--rebalance", "--mix-tenants"}, "tenancy that nodes have"},
		"moves by usage":       {[]string{"--kubeconfig", server, "--rebalance", "--usage", "x.csv"}, "shares that pods have"},
		"moves by profiles":    {[]string{"--kubeconfig", server, "--rebalance", "--profiles", "x.yaml"}, "shares that pods have"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := runWhatif(t, tc.args...); err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want it to name %s", err, tc.want)
			}
		})
	}
}
