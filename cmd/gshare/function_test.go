package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/function"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	serving "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// servingCluster returns newCluster with a function resnet50 in ml, of which one replica is ready on a slice and another one finds no node, and
// another function in web that nobody calls.
func servingCluster(t *testing.T) *apiServer {
	t.Helper()
	a := newCluster(t)
	began := metav1.NewTime(time.Now().Add(-4 * 24 * time.Hour).Truncate(time.Second))
	resnet := serving.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "resnet50", UID: "f1", CreationTimestamp: began}}
	resnet.Spec.SLO.Latency = "69ms"
	resnet.Spec.Resources.Share = &serving.Share{SM: new(int64(50)), Quota: new(int64(60)), Memory: "4Gi"}
	resnet.Spec.Scaling = serving.Scaling{RequestsPerSecond: 32, MaxReplicas: new(2), KeepShared: "30s"}
	resnet.Status = serving.GPUFunctionStatus{
		Pods: "2+0+0", Share: "50% x 60%", Residency: serving.ResidencyCounts{Hot: 2}, Observed: serving.Observed{P99: "90ms", Hit: "81.9%", RequestsPerSecond: "70"},
		Conditions: []metav1.Condition{{Type: serving.ConditionReady, Status: metav1.ConditionTrue, Reason: "Starting", Message: "ml/resnet50-2: waits for a node"}},
	}
	idle := serving.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "bert", CreationTimestamp: began}}
	idle.Spec.SLO = serving.SLO{Latency: "200ms", TimePerToken: "50ms"}
	idle.Status.ServedBy, idle.Status.Host = "checkout", "checkout"
	a.functions = []serving.GPUFunction{idle, resnet}
	replica := func(pod v1.Pod) v1.Pod {
		pod.Labels = map[string]string{serving.LabelFunction: "resnet50"}
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-15*time.Minute - 30*time.Second))
		return pod
	}
	ready := replica(bound(t, "resnet50-x-1", 500, 600))
	ready.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	pending := replica(asking("resnet50-x-2", "50", "4096"))
	pending.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes are available"}}
	gateway := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gshare-system", Name: "gshare-gateway-1", Labels: map[string]string{"app": "gshare-gateway"}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "gateway", Image: "registry.example/gshare-gateway:v1.2.0"}}}, Status: v1.PodStatus{Phase: v1.PodRunning}}
	a.pods = append(a.pods, ready, pending, gateway)
	event := func(minutes int, reason, action, text string) v1.Event {
		return v1.Event{InvolvedObject: v1.ObjectReference{Kind: serving.Kind, Namespace: "ml", Name: "resnet50", UID: "f1"}, Reason: reason, Action: action, Message: text,
			Type: v1.EventTypeNormal, EventTime: metav1.NewMicroTime(time.Now().Add(-time.Duration(minutes) * time.Minute))}
	}
	a.events = []v1.Event{
		event(30, serving.EventScaledFromZero, "Create", "Create replica 1: requests came while there was no replica (load 1/s)"),
		event(5, serving.EventScaled, "Create", "Create replica 2: the load was above the capacity of all replicas in the last second (load 70/s)"),
	}
	earlier := event(50, serving.EventScaledFromZero, "Create", "Create replica 9")
	earlier.InvolvedObject.UID = "f0" // of a function that had the name before
	a.events = append(a.events, earlier)
	var reads atomic.Int64
	a.metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := 100 * reads.Add(1) // 100 requests more at each reading, each of which takes 90 ms, 10 ms of that in the queue
		for name, each := range map[string]float64{"request": 0.09, "queue": 0.01} {
			fmt.Fprintf(w, "# TYPE gshare_gateway_%[1]s_duration_seconds histogram\ngshare_gateway_%[1]s_duration_seconds_bucket{namespace=\"ml\",function=\"resnet50\",le=\"+Inf\"} %[2]d\n"+
				"gshare_gateway_%[1]s_duration_seconds_sum{namespace=\"ml\",function=\"resnet50\"} %[3]g\ngshare_gateway_%[1]s_duration_seconds_count{namespace=\"ml\",function=\"resnet50\"} %[2]d\n",
				name, n, float64(n)*each)
		}
	})
	return a
}

func TestFunction(t *testing.T) {
	kubeconfig := servingCluster(t).kubeconfig(t)
	for name, c := range map[string]struct {
		args []string
		code int
		want []string // all of them in the output, between which columns are one space apart
	}{
		"of the namespace": {[]string{"function"}, 0, []string{"NAME SLO P99 HIT RPS PODS SHARE READY REASON AGE\nresnet50 69ms 90ms 81.9% 70 2+0+0 50% x 60% True Starting 4d\n"}},
		"another name":     {[]string{"functions", "-n", "web"}, 0, []string{"bert 200ms - - - - - Unknown - 4d\n"}},
		"served":           {[]string{"function", "web/bert"}, 0, []string{"SLO 200ms, then 50ms per token: p99", "SERVED BY checkout\n", "no replicas"}},
		"all":              {[]string{"function", "-A"}, 0, []string{"NAMESPACE NAME SLO", "ml resnet50 69ms", "web bert 200ms"}},
		"none":             {[]string{"function", "-n", "empty"}, 0, []string{"no functions"}},
		"one": {[]string{"function", "resnet50"}, 0, []string{"FUNCTION ml/resnet50\n", "READY True, Starting: ml/resnet50-2: waits for a node\n", "SLO 69ms: p99 90ms, 81.9% in time, 70 requests/s\n",
			"REPLICAS 2+0+0 (hot+shared+warm), 0 to 2, each for 32 requests/s\n",
			"resnet50-x-1 Ready Hot n1 GPU-aaaaaaaa 50% SM, 60% time, 4096 MiB 15m -\n", "resnet50-x-2 Pending Hot - - - 15m waits for a node: 0/1 nodes are available\n",
			"AGO EVENT\n5m Create replica 2: the load was", "30m Create replica 1: requests came"}},
		"why": {[]string{"slo", "ml/resnet50", "--during", "10ms"}, 0, []string{"ml/resnet50 objective 69ms: p99 90ms, 81.9% in time\n",
			"NoRoom 1 replica has no node, the first since 15m3", " help: gshare explain -n ml resnet50-x-2 shows",
			"AtLimit the limit is reached: scaling.maxReplicas is 2, and the load is 70/s where each is said to answer 32/s\n",
			"ShareTooSmall a request takes 80ms at a replica", "ColdStarts 1 cold start in the last hour", "Scaled 5m ago: Create replica 2"}},
		"no such function": {[]string{"function", "bert"}, 1, nil},
		"no such, why":     {[]string{"slo", "bert"}, 1, nil},
		"all and one":      {[]string{"function", "-A", "resnet50"}, 2, nil},
		"two":              {[]string{"function", "a", "b"}, 2, nil},
		"of none":          {[]string{"slo"}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := ask(t, kubeconfig, c.args...)
			if (err == nil) != (c.code == 0) || err != nil && cli.ExitCode(err) != c.code {
				t.Errorf("error %v, want code %d", err, c.code)
			}
			flat := spaced(onTime(out))
			for _, want := range c.want {
				if !strings.Contains(flat, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, "replica 9") {
				t.Errorf("an event of another function:\n%s", out)
			}
		})
	}
}

// TestHostText: whose replicas serve a function, and what is to come.
func TestHostText(t *testing.T) {
	for want, s := range map[string]serving.GPUFunctionStatus{
		"":         {},
		"checkout": {ServedBy: "checkout", Host: "checkout"},
		"itself, until checkout has the replicas for both": {ServedBy: "checkout"},
		"checkout, until it has its own replicas again":    {Host: "checkout"},
	} {
		if got := hostText(&s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// spaced returns the text with one space between the columns of its lines.
func spaced(text string) string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		flat := strings.Join(strings.Fields(line), " ")
		if strings.HasPrefix(line, "  ") {
			flat = " " + flat
		}
		lines = append(lines, flat)
	}
	return strings.Join(lines, "\n")
}

// TestFunctionFormats: programs get the same, and the traffic that is not known is a note.
func TestFunctionFormats(t *testing.T) {
	a := servingCluster(t)
	kubeconfig := a.kubeconfig(t)
	var one described
	text, err := ask(t, kubeconfig, "function", "resnet50", "-o", "json")
	if err != nil || json.Unmarshal([]byte(text), &one) != nil || len(one.Replicas) != 2 || one.Replicas[0].Slice != "GPU-aaaaaaaa-1" || len(one.Decisions) != 2 || !one.Decisions[1].ColdStart {
		t.Errorf("%v: %s", err, text)
	}
	var all []serving.GPUFunction
	if text, err = ask(t, kubeconfig, "function", "-A", "-o", "json"); err != nil || json.Unmarshal([]byte(text), &all) != nil || len(all) != 2 {
		t.Errorf("%v: %s", err, text)
	}
	a.metrics = http.NotFoundHandler()
	var report sloReport
	text, err = ask(t, kubeconfig, "slo", "resnet50", "-o", "json")
	if err != nil || json.Unmarshal([]byte(text), &report) != nil || report.Findings[0].Kind != function.NoRoom || len(report.Notes) != 1 ||
		!strings.Contains(report.Notes[0], "404 Not Found") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestFunctionWithoutServing(t *testing.T) {
	kubeconfig := newCluster(t).kubeconfig(t)
	for _, args := range [][]string{{"function"}, {"function", "resnet50"}, {"slo", "resnet50"}} {
		if _, err := ask(t, kubeconfig, args...); err == nil || !strings.Contains(err.Error(), "serving is not installed in this cluster") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// onTime returns output with the ages that it has if the command looks at once.
func onTime(output string) string {
	return regexp.MustCompile(`\b15m3\ds`).ReplaceAllString(regexp.MustCompile(`\b5m\d+s`).ReplaceAllString(output, "5m"), "15m30s")
}

// TestDocumentedFunction: docs/serving-operate.md shows what the commands print of servingCluster.
func TestDocumentedFunction(t *testing.T) {
	kubeconfig := servingCluster(t).kubeconfig(t)
	text, err := os.ReadFile("../../docs/serving-operate.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"function": {"function", "resnet50"}, "slo": {"slo", "resnet50", "--during", "10ms"}} {
		t.Run(name, func(t *testing.T) {
			_, shown, _ := strings.Cut(string(text), "$ kubectl gshare "+name+" resnet50\n")
			shown, _, found := strings.Cut(shown, "```")
			out, err := ask(t, kubeconfig, args...)
			if err != nil || !found || onTime(out) != shown {
				t.Errorf("%v: got\n%s\nwant\n%s", err, out, shown)
			}
		})
	}
}
