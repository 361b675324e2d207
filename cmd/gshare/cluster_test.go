package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/verdict"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// newCluster returns a cluster with one node of two GPUs, two pods that share one of them, and a pending pod that is too large.
func newCluster(t *testing.T) *apiServer {
	t.Helper()
	slice := func(id string) kube.Slice {
		return kube.Slice{ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic}}
	}
	inventory := kube.Inventory{Slices: []kube.Slice{slice("GPU-aaaaaaaa-1"), slice("GPU-bbbbbbbb-2")}}
	text, err := kube.EncodeInventory(inventory)
	if err != nil {
		t.Fatal(err)
	}
	has := quantities("cpu", "64", "memory", "512Gi", "pods", "100")
	for name, q := range kube.NodeResources(inventory) {
		has[name] = q
	}
	node := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{kube.AnnotationInventory: text}}, Status: v1.NodeStatus{Allocatable: has}}
	agent := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gshare-system", Name: "gshare-node-x", Labels: map[string]string{"app": "gshare-node"}},
		Spec:   v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "agent", Image: "gshare-node:v1.2.0"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning}}
	return &apiServer{nodes: []v1.Node{node}, pods: []v1.Pod{
		agent, bound(t, "one", 500, 600), bound(t, "two", 500, 400), asking("large", "60", "81920"),
	}}
}

func asking(name, sm, mem string) v1.Pod {
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Limits: quantities("gshare/sm", sm, "gshare/mem", mem)},
	}}}}
	kube.Complete(&pod)
	return pod
}

func bound(t *testing.T, name string, sm, quota share.PerMille) v1.Pod {
	t.Helper()
	pod := asking(name, "50", "4096")
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: quantities("gshare/sm", fmt.Sprint(sm/10), "gshare/quota", fmt.Sprint(quota/10), "gshare/mem", "4096")}
	kube.Complete(&pod)
	pod.Spec.NodeName = "n1"
	text, err := kube.EncodePlacement(kube.Placement{Node: "n1", UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: "GPU-aaaaaaaa-1", Class: share.MPS, Priority: share.BestEffort,
			Share: share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: 4096 * share.MiB}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations = map[string]string{kube.AnnotationPlacement: text}
	return pod
}

// ask runs gshare with the cluster's kubeconfig.
func ask(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append(args, "--kubeconfig", kubeconfig))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// linesOf are lines, for servingCluster, of commands that show something of a cluster and have arguments or flags.
var linesOf = map[string][]string{
	"explain": {"explain one", "explain large"}, "map": {"map", "map n1"}, "top": {"top --cluster --every 50ms --times 1"},
	"function": {"function -A", "function resnet50"}, "slo": {"slo resnet50 --during 10ms"}, "whatif": {"whatif", "whatif --rebalance"},
}

// clusterLines returns lines of every command that reads a cluster and has a format of its output.
func clusterLines() (all []string) {
	for _, cmd := range root().Commands() {
		switch lines := linesOf[cmd.Name()]; {
		case cmd.Flags().Lookup("kubeconfig") == nil || cmd.Flags().Lookup("output") == nil:
		case len(lines) > 0:
			all = append(all, lines...)
		default:
			all = append(all, cmd.Name())
		}
	}
	return all
}

func TestClusterCommands(t *testing.T) {
	kubeconfig := newCluster(t).kubeconfig(t)
	for name, c := range map[string]struct {
		args []string
		code int
		want []string // all of them in the output
	}{
		"explain a waiting pod": {[]string{"explain", "large"}, 0, []string{"NoNodeFits", "share larger than a slice",
			"gshare/mem: 40960 instead of 81920 in container main", "GPU-aaaaaaaa", "held by ml/one/main, ml/two/main"}},
		"explain a placed pod": {[]string{"explain", "ml/one"}, 0, []string{"Placed", "slice GPU-aaaaaaaa-1 of n1 (A100), mps: 50% SM", "beside ml/two/main", "slot table", "100 ms"}},
		"map":                  {[]string{"map"}, 0, []string{"2 GPUs", "A100"}},
		"map of a node":        {[]string{"map", "n1"}, 0, []string{"n1 GPU 0", "ml/one/main", "n1 GPU 1", "free: 100"}},
		"tree":                 {[]string{"tree"}, 0, []string{"n1", "├─ GPU-aaaaaaaa-1  A100", "│  ├─ ml/one/main", "└─ GPU-bbbbbbbb-2", "empty"}},
		"doctor":               {[]string{"doctor"}, 1, []string{"may not", "unknown", "pod gshare-node-x", "failed"}},
		"version":              {[]string{"version"}, 0, []string{"kube-apiserver", "v1.37.1", "gshare-node", "v1.2.0", "tag of the image", "no pods in gshare-system", "within one minor version"}},
		"no such pod":          {[]string{"explain", "nobody"}, 1, nil},
		"no such node":         {[]string{"map", "n7"}, 1, nil},
		"no pod named":         {[]string{"explain"}, 2, nil},
		"two nodes":            {[]string{"map", "a", "b"}, 2, nil},
		"format":               {[]string{"tree", "-o", "xml"}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := ask(t, kubeconfig, c.args...)
			if (err == nil) != (c.code == 0) || err != nil && cli.ExitCode(err) != c.code {
				t.Errorf("error %v, want code %d", err, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, "\x1b") {
				t.Error("colours in a pipe")
			}
		})
	}
}

// publish changes the inventory of the cluster's node.
func (a *apiServer) publish(t *testing.T, change func(*kube.Inventory)) {
	t.Helper()
	inventory, _, err := kube.InventoryOf(&a.nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	change(&inventory)
	text, err := kube.EncodeInventory(inventory)
	if err != nil {
		t.Fatal(err)
	}
	a.nodes[0].Annotations[kube.AnnotationInventory] = text
}

// TestWindow: the drawings have the window that the node publishes, and the default one where it publishes none.
func TestWindow(t *testing.T) {
	for name, c := range map[string]struct {
		rules      *kube.Rules
		axis, json string
	}{
		"earlier agent": {nil, " 100 ms", `"windowMicroseconds": 100000,`},
		"published": {&kube.Rules{GammaPercent: 150, Window: metav1.Duration{Duration: 50 * time.Millisecond}},
			" 50 ms", `"windowMicroseconds": 50000,`},
	} {
		t.Run(name, func(t *testing.T) {
			api := newCluster(t)
			api.publish(t, func(inventory *kube.Inventory) { inventory.Rules = c.rules })
			kubeconfig := api.kubeconfig(t)
			for command, want := range map[string]string{"map n1": c.axis, "explain ml/one": c.axis, "map -o json": c.json} {
				out, err := ask(t, kubeconfig, strings.Fields(command)...)
				if err != nil || !strings.Contains(out, want) || want == c.axis && strings.Count(out, " ms") != strings.Count(out, want) {
					t.Errorf("%s: %v, no %q, or another window too, in\n%s", command, err, want, out)
				}
			}
		})
	}
}

// TestClosedSlice: the commands show the reason why a slice accepts no new pods.
func TestClosedSlice(t *testing.T) {
	api := newCluster(t)
	api.publish(t, func(inventory *kube.Inventory) {
		inventory.Slices[1].Healthy, inventory.Slices[1].Reason = false, kube.ReasonCordoned
	})
	kubeconfig := api.kubeconfig(t)
	for command, want := range map[string]string{
		"tree": "closed: cordoned", "doctor": "1 of 2 slices closed to new pods, GPU-bbbbbbbb-2: cordoned",
		"explain large": "matching GPUs are unhealthy: cordoned",
	} {
		t.Run(command, func(t *testing.T) {
			if out, _ := ask(t, kubeconfig, strings.Fields(command)...); !strings.Contains(out, want) { // doctor reports other failures, too
				t.Errorf("no %q in\n%s", want, out)
			}
		})
	}
}

// TestClusterFormats: JSON and YAML can be decoded and are equal.
func TestClusterFormats(t *testing.T) {
	kubeconfig := servingCluster(t).kubeconfig(t)
	for _, line := range clusterLines() {
		args := strings.Fields(line)
		t.Run(line, func(t *testing.T) {
			var first, second any
			text, _ := ask(t, kubeconfig, append(args, "-o", "json")...)
			if err := json.Unmarshal([]byte(text), &first); err != nil || first == nil {
				t.Errorf("%v: %v in %s", args, err, text)
			}
			text, _ = ask(t, kubeconfig, append(args, "-o", "yaml")...)
			if err := yaml.Unmarshal([]byte(text), &second); err != nil || fmt.Sprint(first) != fmt.Sprint(second) && args[0] != "doctor" && args[0] != "top" { // those measure
				t.Errorf("%v: %v in %s", args, err, text)
			}
		})
	}
	var report verdict.Report
	text, err := ask(t, kubeconfig, "explain", "one", "-o", "json")
	if err != nil || json.Unmarshal([]byte(text), &report) != nil || report.Reason != verdict.Placed || len(report.Places) != 1 || len(report.Places[0].Beside) != 2 {
		t.Errorf("%v: %+v", err, report)
	}
}

func TestMapSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "map.svg")
	if _, err := ask(t, newCluster(t).kubeconfig(t), "map", "--svg", file); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte("ml/two/main")) || !bytes.Contains(text, []byte("n1 GPU 1")) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestTopOfCluster(t *testing.T) {
	api := newCluster(t)
	busy := 0
	api.metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		busy++ // one second more in each sample
		const labels = `{container="c1",device="GPU-aaaaaaaa-1",vgpu="0"}`
		for _, name := range []string{"sm_ratio", "quota_request_ratio", "quota_limit_ratio"} {
			fmt.Fprintf(w, "# TYPE gshare_share_%s gauge\n", name)
		}
		fmt.Fprintf(w, "# TYPE gshare_share_busy_seconds_total counter\ngshare_node_grant_info{container=\"c1\",namespace=\"ml\",pod=\"one\",name=\"main\"} 1\n"+
			"gshare_node_slice_closed{slice=\"GPU-aaaaaaaa.1g10gb.0\",uuid=\"GPU-aaaaaaaa-1\",reason=\"cordoned\"} 1\n"+
			"gshare_share_sm_ratio%s 0.5\ngshare_share_quota_request_ratio%s 0.6\ngshare_share_quota_limit_ratio%s 0.6\ngshare_share_busy_seconds_total%s %d\n",
			labels, labels, labels, labels, busy)
	})
	kubeconfig := api.kubeconfig(t)
	text, err := ask(t, kubeconfig, "top", "--cluster", "--every", "50ms", "-o", "json")
	var look useReport
	if err != nil || json.Unmarshal([]byte(text), &look) != nil || len(look.Shares) != 1 || len(look.Errors) > 0 {
		t.Fatalf("%v: %s", err, text)
	}
	if u := look.Shares[0]; u.Container != "ml/one/main" || u.Quota != 600 || u.SM != 500 || u.Used < 1 || u.Node != "n1" || u.Closed != "cordoned" {
		t.Errorf("%+v", u)
	}
	if text, err := ask(t, kubeconfig, "top", "--cluster", "--every", "50ms", "--times", "1"); err != nil || !strings.Contains(text, ", slice closed: cordoned") {
		t.Errorf("%v: %s", err, text)
	}
	api.metrics = http.NotFoundHandler()
	text, err = ask(t, kubeconfig, "top", "--cluster", "--every", "50ms", "--times", "1")
	if err != nil || !strings.Contains(text, "error: n1: 404") {
		t.Errorf("an agent without metrics: %v: %s", err, text)
	}
	if _, err := ask(t, kubeconfig, "top", "--cluster", "--node", "n7"); err == nil {
		t.Error("a node without an agent is watched")
	}
}

func TestNames(t *testing.T) {
	kubeconfig := newCluster(t).kubeconfig(t)
	for _, program := range []string{"/usr/bin/kubectl-gshare", "/usr/bin/kubectl-gshare.exe"} {
		t.Run(program, func(t *testing.T) {
			cmd, out := root(), bytes.Buffer{}
			setProgram(cmd, program, nil)
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"explain", "--help"})
			if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "kubectl gshare explain POD") || strings.Contains(out.String(), "\n  gshare ") {
				t.Errorf("%v: %s", err, out.String())
			}
			if wanted, _ := commandNamed(t, cmd, "top").Flags().GetBool(clusterFlag); !wanted {
				t.Error("kubectl gshare top looks at this machine")
			}
		})
	}
	cmd, out := root(), bytes.Buffer{}
	setProgram(cmd, completeName, []string{"explain", "--kubeconfig", kubeconfig, "-n", "ml", ""})
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "one\ntwo\nlarge\n") {
		t.Errorf("%v: completions %q", err, out.String())
	}
}

func commandNamed(t *testing.T, root *cobra.Command, name string) *cobra.Command {
	t.Helper()
	for _, cmd := range root.Commands() {
		if cmd.Name() == name {
			return cmd
		}
	}
	t.Fatalf("there is no command %s", name)
	return nil
}
