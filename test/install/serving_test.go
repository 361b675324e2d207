package install_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	serving "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// shortest is all that a user has to write for a function.
const shortest = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 69ms}
  template: {spec: {containers: [{name: server, image: registry.example/resnet50}]}}
`

// external is a function that another autoscaler scales.
const external = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 69ms}
  scaling: {autoscaler: External, requestsPerSecond: 32}
`

// scaled is a FaSTPod.
const scaled = `apiVersion: serving.gshare.dev/v1alpha1
kind: FaSTPod
metadata: {name: scaled}
spec:
  share: {sm: 12, quota: 40, quotaLimit: 80, memory: 1525Mi}
  template: {spec: {containers: [{name: server, image: registry.example/resnet50}]}}
`

// limits is a policy for two namespaces.
const limits = `apiVersion: serving.gshare.dev/v1alpha1
kind: SharePolicy
metadata: {name: teams}
spec:
  tenants:
  - {namespace: vision, maxSMPercent: 250, maxMemory: 320Gi}
  - {namespace: "*", maxReplicas: 0}
`

// tenant returns one tenant of a policy, with the given fields.
func tenant(fields ...any) []any {
	t := map[string]any{"namespace": "vision"}
	for i := 0; i < len(fields); i += 2 {
		t[fields[i].(string)] = fields[i+1]
	}
	return []any{t}
}

// planned is all that a user has to write for a plan.
const planned = `apiVersion: serving.gshare.dev/v1alpha1
kind: InferencePlan
metadata: {name: vision}
spec:
  model: vision
  functions: [{name: checkout}, {name: search}]
  profiles: {configMap: profiles}
  prices: {configMap: prices}
`

// measured is a profile of a function. measuredTemplate is a profile of a server that is not a function.
const measured = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: measured}
spec:
  functionRef: {name: resnet50}
`

const measuredTemplate = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: measured}
spec:
  slo: {latency: 69ms}
  protocol: OIP
  accelerator: H200
  search: {strategy: Grid, sm: [12, 24], quota: [50, 100]}
  template: {spec: {containers: [{name: server, image: registry.example/resnet50}]}}
`

const measuredTraining = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: measured}
spec:
  training: {}
  search: {strategy: Bisection}
  template: {spec: {containers: [{name: main, image: registry.example/train}]}}
`

// onMachine converts a function for a cluster to one that a single machine can run.
func onMachine(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		c := c.(map[string]any)
		delete(c, "image")
		c["command"] = []any{"serve"}
	}
	if len(containers) > 0 {
		set(o, "spec.template.spec.containers", containers)
	}
	return o
}

// set changes a field, or deletes it if the value is nil.
func set(o *unstructured.Unstructured, field string, value any) {
	path := strings.Split(field, ".")
	if value == nil {
		unstructured.RemoveNestedField(o.Object, path...)
	} else if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(err)
	}
}

func resource(plural string) dynamic.ResourceInterface {
	kind := dynamic.NewForConfigOrDie(server).Resource(schema.GroupVersionResource{Group: "serving.gshare.dev", Version: "v1alpha1", Resource: plural})
	if plural == "sharepolicies" { // they are cluster-scoped
		return kind
	}
	return kind.Namespace("default")
}

// defineServing creates the CRDs of serving, and waits until the server serves them.
func defineServing(t *testing.T) {
	t.Helper()
	for _, what := range [][]string{{"-f", root + "manifests/base/namespace.yaml"}, {"-k", root + "manifests/serving"}} {
		if out, err := run(append([]string{"apply"}, what...)); err != nil {
			t.Fatal(err, out)
		}
	}
	for _, plural := range []string{"gpufunctions", "fastpods", "sharepolicies", "inferenceplans", "gpuprofiles"} {
		var last error
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, last = resource(plural).List(ctx, metav1.ListOptions{})
			return last == nil, nil
		})
		if err != nil {
			t.Fatalf("%s: %v, %v", plural, err, last)
		}
	}
	meta.MaybeResetRESTMapper(mapper())
}

// keep creates an object and deletes it at the end of the test.
func keep(t *testing.T, plural string, o *unstructured.Unstructured) {
	t.Helper()
	if _, err := resource(plural).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := resource(plural).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// stored returns the object as the server would store it. Unknown fields are errors.
func stored(t *testing.T, plural string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	return resource(plural).Create(t.Context(), o, options)
}

// TestServingDefaults: the shortest function is accepted and gets the same defaults as with gshare serve, and the stored object has no
// field that the Go type lacks.
func TestServingDefaults(t *testing.T) {
	defineServing(t)
	o := objects(t, "", shortest)[0]
	got, err := stored(t, "gpufunctions", o)
	if err != nil {
		t.Fatal(err)
	}
	var f serving.GPUFunction
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(got.Object, &f, true); err != nil {
		t.Fatal(err)
	}
	set(o, "spec.resources.share", map[string]any{"sm": int64(24), "memory": "1525Mi"})
	set(o, "spec.scaling.requestsPerSecond", int64(40))
	machine := serveFunction(t, onMachine(o))
	f.Spec.Scaling.RequestsPerSecond = 40
	if diff := cmp.Diff(machine.Spec.Scaling, f.Spec.Scaling); diff != "" {
		t.Errorf("scaling (-gshare serve +cluster):\n%s", diff)
	}
	if f.Spec.Protocol != machine.Spec.Protocol || f.Spec.Batching != machine.Spec.Batching || f.Spec.SLO != machine.Spec.SLO || f.Spec.Resources.Share != nil {
		t.Errorf("%+v, and on a machine %+v", f.Spec, machine.Spec)
	}
	withShare, err := stored(t, "gpufunctions", o)
	if err != nil {
		t.Fatal(err)
	}
	if quota, _, _ := unstructured.NestedInt64(withShare.Object, "spec", "resources", "share", "quota"); quota != 100 {
		t.Errorf("quota %d, want 100", quota)
	}
	if got, err = stored(t, "fastpods", objects(t, "", scaled)[0]); err != nil {
		t.Fatal(err)
	}
	var p serving.FaSTPod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(got.Object, &p, true); err != nil {
		t.Fatal(err)
	}
	if *p.Spec.Replicas != 1 || *p.Spec.Share.QuotaLimit != 80 || p.Spec.FunctionRef != nil {
		t.Errorf("%+v", p.Spec)
	}
	if got, err = stored(t, "sharepolicies", objects(t, "", limits)[0]); err != nil {
		t.Fatal(err)
	}
	var policy serving.SharePolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(got.Object, &policy, true); err != nil {
		t.Fatal(err)
	}
	if limit, limited := policy.LimitOf("chat"); !limited || limit.Replicas == nil || *limit.Replicas != 0 {
		t.Errorf("%+v", policy.Spec)
	}
	if got, err = stored(t, "inferenceplans", objects(t, "", planned)[0]); err != nil {
		t.Fatal(err)
	}
	var plan serving.InferencePlan
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(got.Object, &plan, true); err != nil {
		t.Fatal(err)
	}
	if s := plan.Spec; s.Mode != serving.Recommend || !slices.Equal(s.Modes, []serving.ExecutionMode{serving.ModeShare}) ||
		*s.Replan.DriftPercent != 20 || s.Replan.After != "60s" || *s.Replan.MinSavingPercent != 5 {
		t.Errorf("%+v", s)
	}
}

// TestProfileDefaults: the shortest profile gets the same defaults that the controller assumes without them, and the stored object has no
// field that the Go type lacks.
func TestProfileDefaults(t *testing.T) {
	defineServing(t)
	for _, text := range []string{measured, measuredTemplate, measuredTraining} {
		got, err := stored(t, "gpuprofiles", objects(t, "", text)[0])
		if err != nil {
			t.Fatal(err)
		}
		var p serving.GPUProfile
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(got.Object, &p, true); err != nil {
			t.Fatal(err)
		}
		if training := p.Spec.Training; training != nil && training.Steady != "15s" {
			t.Errorf("%+v", training)
		}
		if p.Spec.Search.MaxTrials != 60 || p.Spec.StaleAfter != "720h" || p.Spec.FunctionRef != nil && p.Spec.Search.Strategy != serving.HybridGrowth {
			t.Errorf("%+v", p.Spec)
		}
	}
}

// serveFunction returns the function as gshare serve decodes it.
func serveFunction(t *testing.T, o *unstructured.Unstructured) *serving.GPUFunction {
	t.Helper()
	functions, err := decodeFile(t, o)
	if err != nil || len(functions) != 1 {
		t.Fatal(functions, err)
	}
	return functions[0]
}

func decodeFile(t *testing.T, o *unstructured.Unstructured) ([]*serving.GPUFunction, error) {
	t.Helper()
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	return serving.Decode(text)
}

// edits maps fields to new values; nil deletes a field.
type edits map[string]any

// apply returns a copy of the object with the edits, made in the order of the fields' names, so that a field precedes those within it.
func (e edits) apply(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, field := range slices.Sorted(maps.Keys(e)) {
		set(o, field, e[field])
	}
	return o
}

// container returns a container with additional fields.
func container(fields ...string) map[string]any {
	c := map[string]any{"name": "server", "image": "x"}
	for i := 0; i < len(fields); i += 2 {
		c[fields[i]] = fields[i+1]
	}
	return c
}

// badFunctions are refused by the API server and by gshare serve, in both cases with the name of the field.
var badFunctions = map[string]struct {
	edits   edits
	field   string // which both errors name
	cluster string // what the API server's error also contains
}{
	"no objective":        {edits{"spec.slo.latency": nil}, "spec.slo.latency", "Required"},
	"no unit":             {edits{"spec.slo.latency": "69"}, "spec.slo.latency", "want a duration of 1ms to 1h, such as 69ms"},
	"a number":            {edits{"spec.slo.latency": int64(69)}, "spec.slo.latency", "must be of type string"},
	"no duration":         {edits{"spec.slo.latency": "fast"}, "spec.slo.latency", "want a duration"},
	"empty":               {edits{"spec.slo.latency": ""}, "spec.slo.latency", "want a duration"},
	"objective 0":         {edits{"spec.slo.latency": "0s"}, "spec.slo.latency", "want a duration"},
	"negative":            {edits{"spec.slo.latency": "-69ms"}, "spec.slo.latency", "want a duration"},
	"2 hours":             {edits{"spec.slo.latency": "2h"}, "spec.slo.latency", "want a duration"},
	"too long":            {edits{"spec.slo.latency": "99999999999999h"}, "spec.slo.latency", "duration"},
	"tokens of HTTP":      {edits{"spec.slo.timePerToken": "50ms"}, "spec.slo.timePerToken", "want protocol OpenAI, whose answers have tokens"},
	"tokens, no unit":     {edits{"spec.protocol": "OpenAI", "spec.slo.timePerToken": "50"}, "spec.slo.timePerToken", "want a duration of 1ms to 1h, such as 50ms"},
	"tokens, 2 hours":     {edits{"spec.protocol": "OpenAI", "spec.slo.timePerToken": "2h"}, "spec.slo.timePerToken", "want a duration"},
	"unknown field":       {edits{"spec.slo.percentile": int64(95)}, `unknown field "spec.slo.percentile"`, ""},
	"what is not there":   {edits{"spec.pipelines.stages": []any{}}, `unknown field "spec.pipelines"`, ""},
	"misspelt":            {edits{"spec.template.spec.containers": []any{container("readynessProbe", "x")}}, `unknown field "spec.template.spec.containers[0].readynessProbe"`, ""},
	"protocol":            {edits{"spec.protocol": "gRPC"}, "spec.protocol", `"HTTP", "OIP", "OpenAI"`},
	"batches of HTTP":     {edits{"spec.batching.maxBatch": int64(2)}, "spec.batching.maxBatch", "only requests of protocol OIP"},
	"large batches":       {edits{"spec.protocol": "OIP", "spec.batching.maxBatch": int64(4097)}, "spec.batching.maxBatch", "4096"},
	"no template":         {edits{"spec.template": nil}, "spec.template", "want a template"},
	"no container":        {edits{"spec.template.spec.containers": []any{}}, "spec.template.spec.containers", "want 1 container"},
	"two containers":      {edits{"spec.template.spec.containers": []any{container(), container("name", "other")}}, "spec.template.spec.containers", "want 1 container"},
	"no sm":               {edits{"spec.resources.share.sm": nil}, "spec.resources.share.sm", "Required"},
	"sm 0":                {edits{"spec.resources.share.sm": int64(0)}, "spec.resources.share.sm", "greater than or equal to 1"},
	"sm 101":              {edits{"spec.resources.share.sm": int64(101)}, "spec.resources.share.sm", "less than or equal to 100"},
	"part of a percent":   {edits{"spec.resources.share.sm": 24.5}, "spec.resources.share.sm", "must be of type integer"},
	"quota 0":             {edits{"spec.resources.share.quota": int64(0)}, "spec.resources.share.quota", "greater than or equal to 1"},
	"quota 101":           {edits{"spec.resources.share.quota": int64(101)}, "spec.resources.share.quota", "less than or equal to 100"},
	"limit below":         {edits{"spec.resources.share.quota": int64(50), "spec.resources.share.quotaLimit": int64(40)}, "spec.resources.share.quotaLimit", "want at least the quota"},
	"limit below default": {edits{"spec.resources.share.quotaLimit": int64(80)}, "spec.resources.share.quotaLimit", "want at least the quota"},
	"SM limit below":      {edits{"spec.resources.share.smLimit": int64(23)}, "spec.resources.share.smLimit", "want at least sm"},
	"SM limit of a part":  {edits{"spec.resources.share.smLimit": int64(48), "spec.resources.share.quota": int64(50)}, "spec.resources.share.smLimit", "needs quota 100"},
	"SM limit 101":        {edits{"spec.resources.share.smLimit": int64(101)}, "spec.resources.share.smLimit", "less than or equal to 100"},
	"GPUs -1":             {edits{"spec.resources.share.gpus": int64(-1)}, "spec.resources.share.gpus", "greater than or equal to 1"},
	"GPUs 65":             {edits{"spec.resources.share.sm": int64(100), "spec.resources.share.gpus": int64(65)}, "spec.resources.share.gpus", "less than or equal to 64"},
	"parts of two GPUs":   {edits{"spec.resources.share.gpus": int64(2)}, "spec.resources.share.gpus", "want sm 100 and quota 100"},
	"times of two GPUs":   {edits{"spec.resources.share.sm": int64(100), "spec.resources.share.quota": int64(50), "spec.resources.share.gpus": int64(2)}, "spec.resources.share.gpus", "want sm 100 and quota 100"},
	"park two GPUs":       {edits{"spec.resources.share.sm": int64(100), "spec.resources.share.gpus": int64(2), "spec.scaling.keepWarm": "10m"}, "spec.scaling.keepWarm", "only replicas with one can be parked"},
	"limit 101":           {edits{"spec.resources.share.quotaLimit": int64(101)}, "spec.resources.share.quotaLimit", "less than or equal to 100"},
	"no memory":           {edits{"spec.resources.share.memory": nil}, "spec.resources.share.memory", "Required"},
	"memory 0":            {edits{"spec.resources.share.memory": "0"}, "spec.resources.share.memory", "want a quantity of 1Mi to 1Pi"},
	"memory without unit": {edits{"spec.resources.share.memory": "1525"}, "spec.resources.share.memory", "want a quantity"},
	"memory as a number":  {edits{"spec.resources.share.memory": int64(1525)}, "spec.resources.share.memory", "must be of type string"},
	"much memory":         {edits{"spec.resources.share.memory": "2Pi"}, "spec.resources.share.memory", "want a quantity"},
	"memory unreadable":   {edits{"spec.resources.share.memory": "12345678901234567890e999999999"}, "spec.resources.share.memory", "want a quantity"},
	"no quantity":         {edits{"spec.resources.share.memory": "1525MiB"}, "spec.resources.share.memory", "want a quantity"},
	"replicas -1":         {edits{"spec.scaling.minReplicas": int64(-1)}, "spec.scaling.minReplicas", "greater than or equal to 0"},
	"replicas 1001":       {edits{"spec.scaling.minReplicas": int64(1001), "spec.scaling.maxReplicas": int64(1001)}, "spec.scaling.minReplicas", "less than or equal to 1000"},
	"no replicas":         {edits{"spec.scaling.maxReplicas": int64(0)}, "spec.scaling.maxReplicas", "greater than or equal to 1"},
	"few replicas":        {edits{"spec.scaling.minReplicas": int64(2), "spec.scaling.maxReplicas": int64(1)}, "spec.scaling.maxReplicas", "want at least minReplicas"},
	"no rate":             {edits{"spec.scaling.requestsPerSecond": int64(0)}, "spec.scaling.requestsPerSecond", "want at least 0.001"},
	"great rate":          {edits{"spec.scaling.requestsPerSecond": 2e6}, "spec.scaling.requestsPerSecond", "less than or equal to 1000000"},
	"concurrency 0":       {edits{"spec.scaling.concurrency": int64(0)}, "spec.scaling.concurrency", "greater than or equal to 1"},
	"concurrency":         {edits{"spec.scaling.concurrency": int64(10001)}, "spec.scaling.concurrency", "less than or equal to 10000"},
	"short window":        {edits{"spec.scaling.window": "1s"}, "spec.scaling.window", "want a duration of 2s to 1h"},
	"long window":         {edits{"spec.scaling.window": "1h1s"}, "spec.scaling.window", "want a duration of 2s to 1h"},
	"no votes":            {edits{"spec.scaling.scaleOutVotes": int64(0)}, "spec.scaling.scaleOutVotes", "greater than or equal to 1"},
	"many votes":          {edits{"spec.scaling.scaleOutVotes": int64(21)}, "spec.scaling.scaleOutVotes", "want at most the seconds of the window"},
	"no votes in":         {edits{"spec.scaling.scaleInVotes": int64(0)}, "spec.scaling.scaleInVotes", "greater than or equal to 1"},
	"many votes in":       {edits{"spec.scaling.scaleInVotes": int64(20)}, "spec.scaling.scaleInVotes", "want less than the seconds of the window"},
	"no reserve":          {edits{"spec.scaling.keepShared": "0s"}, "spec.scaling.keepShared", "want a duration of 1ms to 24h"},
	"long reserve":        {edits{"spec.scaling.keepShared": "25h"}, "spec.scaling.keepShared", "want a duration of 1ms to 24h"},
	"aliases of HTTP":     {edits{"spec.protocol": "HTTP", "spec.model.aliases": []any{"a"}}, "spec.model", "want protocol OpenAI"},
	"alias with a space":  {edits{"spec.protocol": "OpenAI", "spec.model.aliases": []any{"a b"}}, "spec.model.aliases", "want letters"},
	"alias twice":         {edits{"spec.protocol": "OpenAI", "spec.model.aliases": []any{"a", "a"}}, "spec.model.aliases", "Duplicate"},
	"caller's namespace":  {edits{"spec.access.namespaces": []any{"Team A"}}, "spec.access.namespaces", "want names of namespaces"},
	"empty namespace":     {edits{"spec.access.namespaces": []any{""}}, "spec.access.namespaces", "want names of namespaces"},
	"namespace twice":     {edits{"spec.access.namespaces": []any{"a", "a"}}, "spec.access.namespaces", "Duplicate"},
	"access for all":      {edits{"spec.access": "*"}, "spec.access", "must be of type object"},
	"long name":           {edits{"metadata.name": strings.Repeat("a", 51)}, "metadata.name", "want 1 to 50"},
	"a domain":            {edits{"metadata.name": "a.b"}, "metadata.name", "want 1 to 50"},
	"capitals":            {edits{"metadata.name": "ResNet"}, "metadata.name", "RFC 1123"},
}

func TestServingRefuses(t *testing.T) {
	defineServing(t)
	good := edits{
		"spec.resources.share": map[string]any{"sm": int64(24), "memory": "1525Mi"}, "spec.scaling": map[string]any{"requestsPerSecond": int64(40)},
	}.apply(objects(t, "", shortest)[0])
	if _, err := stored(t, "gpufunctions", good); err != nil {
		t.Fatal(err)
	}
	serveFunction(t, onMachine(good))
	for _, memory := range []string{"1.073741824e+09", "+1Gi"} { // as Helm, for example, writes a large number
		object := edits{"spec.resources.share.memory": memory}.apply(good)
		if _, err := stored(t, "gpufunctions", object); err != nil {
			t.Errorf("memory %s: %v", memory, err)
		}
		serveFunction(t, onMachine(object))
	}
	for name, tc := range badFunctions {
		t.Run(name, func(t *testing.T) {
			bad := tc.edits.apply(good)
			if _, err := stored(t, "gpufunctions", bad); err == nil || !strings.Contains(err.Error(), tc.field) || !strings.Contains(err.Error(), tc.cluster) {
				t.Errorf("the API server: %v\nwant %s: %s", err, tc.field, tc.cluster)
			}
			if _, err := decodeFile(t, onMachine(bad)); err == nil || !strings.Contains(err.Error(), tc.field) {
				t.Errorf("gshare serve: %v\nwant %s", err, tc.field)
			}
		})
	}
}

// TestServingRefusesInCluster tests what only the API server refuses.
func TestServingRefusesInCluster(t *testing.T) {
	defineServing(t)
	for name, tc := range map[string]struct {
		plural, object string
		edits          edits
		field, why     string
	}{
		"no image":      {"gpufunctions", shortest, edits{"spec.template.spec.containers": []any{container("image", "")}}, "spec.template.spec.containers", "want an image"},
		"command alone": {"gpufunctions", shortest, edits{"spec.template.spec.containers": []any{map[string]any{"name": "server", "command": []any{"serve"}}}}, "spec.template.spec.containers", "want an image"},
		"CPU unreadable": {"gpufunctions", shortest, edits{"spec.template.spec.containers": []any{map[string]any{
			"name": "server", "image": "x", "resources": map[string]any{"limits": map[string]any{"cpu": "12345678901234567890e999999999"}}}}}, "limits.cpu", "should match"},
		"port unreadable": {"gpufunctions", shortest, edits{"spec.template.spec.containers": []any{map[string]any{
			"name": "server", "image": "x", "livenessProbe": map[string]any{"tcpSocket": map[string]any{"port": int64(3000000000)}}}}}, "tcpSocket.port", "less than or equal to 65535"},
		"default maximum":   {"gpufunctions", shortest, edits{"spec.scaling.minReplicas": int64(11)}, "spec.scaling.maxReplicas", "the default is 10"},
		"FaSTPod: no image": {"fastpods", scaled, edits{"spec.template.spec.containers": []any{container("image", "")}}, "spec.template.spec.containers", "want an image"},
		"no pod":            {"fastpods", scaled, edits{"spec.template.spec.containers": []any{}}, "spec.template.spec.containers", "want at least 1"},
		"no share":          {"fastpods", scaled, edits{"spec.share": nil}, "spec.share", "Required"},
		"limit":             {"fastpods", scaled, edits{"spec.share.quotaLimit": int64(39)}, "spec.share.quotaLimit", "want at least the quota"},
		"replicas -1":       {"fastpods", scaled, edits{"spec.replicas": int64(-1)}, "spec.replicas", "greater than or equal to 0"},
		"replicas 1001":     {"fastpods", scaled, edits{"spec.replicas": int64(1001)}, "spec.replicas", "less than or equal to 1000"},
		"no function":       {"fastpods", scaled, edits{"spec.functionRef.name": ""}, "spec.functionRef.name", "at least 1"},
		"long name":         {"fastpods", scaled, edits{"metadata.name": strings.Repeat("a", 57)}, "metadata.name", "want 1 to 56"},

		"no tenant":            {"sharepolicies", limits, edits{"spec.tenants": []any{}}, "spec.tenants", "at least 1"},
		"a tenant twice":       {"sharepolicies", limits, edits{"spec.tenants": append(tenant("maxReplicas", int64(1)), tenant("maxReplicas", int64(1))...)}, "spec.tenants[1]", "Duplicate"},
		"no limit":             {"sharepolicies", limits, edits{"spec.tenants": tenant()}, "spec.tenants[0]", "want at least one of maxSMPercent"},
		"no namespace":         {"sharepolicies", limits, edits{"spec.tenants": tenant("namespace", "", "maxReplicas", int64(1))}, "spec.tenants[0].namespace", "at least 1"},
		"no name of any":       {"sharepolicies", limits, edits{"spec.tenants": tenant("namespace", "Team A", "maxReplicas", int64(1))}, "spec.tenants[0].namespace", "want the name of a namespace"},
		"replicas below 0":     {"sharepolicies", limits, edits{"spec.tenants": tenant("maxReplicas", int64(-1))}, "spec.tenants[0].maxReplicas", "greater than or equal to 0"},
		"SM below 0":           {"sharepolicies", limits, edits{"spec.tenants": tenant("maxSMPercent", int64(-1))}, "spec.tenants[0].maxSMPercent", "greater than or equal to 0"},
		"memory below 0":       {"sharepolicies", limits, edits{"spec.tenants": tenant("maxMemory", "-1Gi")}, "spec.tenants[0].maxMemory", "want a quantity of 0 to 1Ei"},
		"memory of a disk":     {"sharepolicies", limits, edits{"spec.tenants": tenant("maxMemory", "2Ei")}, "spec.tenants[0].maxMemory", "want a quantity of 0 to 1Ei"},
		"memory is no amount":  {"sharepolicies", limits, edits{"spec.tenants": tenant("maxMemory", "much")}, "spec.tenants[0].maxMemory", "want a quantity of 0 to 1Ei"},
		"priority above bound": {"sharepolicies", limits, edits{"spec.tenants": tenant("priority", int64(1001))}, "spec.tenants[0].priority", "less than or equal to 1000"},

		"plan: unknown use":            {"inferenceplans", planned, edits{"spec.mode": "Enforce"}, "spec.mode", "Unsupported value"},
		"plan: no functions":           {"inferenceplans", planned, edits{"spec.functions": []any{}}, "spec.functions", "at least 1"},
		"plan: a function twice":       {"inferenceplans", planned, edits{"spec.functions": []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}}, "spec.functions", "Duplicate value"},
		"plan: a rate of 0":            {"inferenceplans", planned, edits{"spec.functions": []any{map[string]any{"name": "a", "requestsPerSecond": float64(0)}}}, "spec.functions[0].requestsPerSecond", "at least 0.001"},
		"plan: unknown mode":           {"inferenceplans", planned, edits{"spec.modes": []any{"TPU"}}, "spec.modes[0]", "Unsupported value"},
		"plan: no modes":               {"inferenceplans", planned, edits{"spec.modes": []any{}}, "spec.modes", "at least 1"},
		"plan: no prices":              {"inferenceplans", planned, edits{"spec.prices": nil}, "spec.prices", "Required"},
		"plan: after 500ms":            {"inferenceplans", planned, edits{"spec.replan.after": "500ms"}, "spec.replan.after", "want a duration of 1s to 24h"},
		"plan: drift 0":                {"inferenceplans", planned, edits{"spec.replan.driftPercent": int64(0)}, "spec.replan.driftPercent", "greater than or equal to 1"},
		"no template":                  {"gpufunctions", shortest, edits{"spec.template": nil}, "spec.template", "want a template, unless"},
		"another autoscaler":           {"gpufunctions", shortest, edits{"spec.scaling.autoscaler": "KEDA"}, "spec.scaling.autoscaler", "Unsupported value"},
		"External with a template":     {"gpufunctions", shortest, edits{"spec.scaling.autoscaler": "External", "spec.scaling.requestsPerSecond": int64(1)}, "spec.scaling.autoscaler", "neither template nor resources"},
		"External with a share":        {"gpufunctions", external, edits{"spec.resources.share.sm": int64(1), "spec.resources.share.memory": "1Gi"}, "spec.scaling.autoscaler", "neither template nor resources"},
		"External without a rate":      {"gpufunctions", external, edits{"spec.scaling.requestsPerSecond": nil}, "spec.scaling.requestsPerSecond", "what one replica answers"},
		"profile of nothing":           {"gpuprofiles", measured, edits{"spec.functionRef": nil}, "spec", "exactly one of functionRef and template"},
		"profile of both":              {"gpuprofiles", measuredTemplate, edits{"spec.functionRef.name": "x"}, "spec", "exactly one of functionRef and template"},
		"profile for tokens":           {"gpuprofiles", measuredTemplate, edits{"spec.slo.timePerToken": "50ms"}, `unknown field "spec.slo.timePerToken"`, ""},
		"profile without an objective": {"gpuprofiles", measuredTemplate, edits{"spec.slo": nil}, "spec.slo", "want it with a template"},
		"profile with two objectives":  {"gpuprofiles", measured, edits{"spec.slo.latency": "1s"}, "spec.slo", "want it with a template"},
		"profile with two protocols":   {"gpuprofiles", measured, edits{"spec.protocol": "OIP"}, "spec.protocol", "with a template only"},
		"profile of two containers":    {"gpuprofiles", measuredTemplate, edits{"spec.template.spec.containers": []any{container(), container("name", "other")}}, "spec.template.spec.containers", "want 1 container"},
		"profile: no image":            {"gpuprofiles", measuredTemplate, edits{"spec.template.spec.containers": []any{container("image", "")}}, "spec.template.spec.containers", "want an image"},
		"profile: long name":           {"gpuprofiles", measured, edits{"metadata.name": strings.Repeat("a", 51)}, "metadata.name", "want 1 to 50"},
		"profile: path":                {"gpuprofiles", measured, edits{"spec.request.path": "x"}, "spec.request.path", "begins with /"},
		"profile: two bodies": {"gpuprofiles", measured, edits{"spec.request": map[string]any{"body": "x", "bodyFrom": map[string]any{"configMap": "samples", "key": "cat.png"}}},
			"spec.request.bodyFrom", "want one of body and bodyFrom"},
		"function: long body":  {"gpufunctions", shortest, edits{"spec.request.body": strings.Repeat("x", 16385)}, "spec.request.body", "may not be more than 16384"},
		"function: body's key": {"gpufunctions", shortest, edits{"spec.request": map[string]any{"bodyFrom": map[string]any{"configMap": "samples", "key": "../x"}}}, "spec.request.bodyFrom.key", "want a key"},
		"function: header": {"gpufunctions", shortest, edits{"spec.request": map[string]any{"headers": []any{map[string]any{"name": "Host", "value": "x"}}}},
			"spec.request.headers[0].name", "want a header such as Accept"},
		"function: value of a header": {"gpufunctions", shortest, edits{"spec.request": map[string]any{"headers": []any{map[string]any{"name": "Accept", "value": "a\r\nb"}}}},
			"spec.request.headers[0].value", "want printable ASCII"},
		"profile: memory":               {"gpuprofiles", measured, edits{"spec.memory": "1525"}, "spec.memory", "want a quantity"},
		"profile: GPU":                  {"gpuprofiles", measured, edits{"spec.accelerator": "H200,H100"}, "spec.accelerator", "model of a GPU"},
		"profile: sm of HybridGrowth":   {"gpuprofiles", measuredTemplate, edits{"spec.search.strategy": nil}, "spec.search.strategy", "with Grid only"},
		"profile: step of Grid":         {"gpuprofiles", measuredTemplate, edits{"spec.search.step": int64(5)}, "spec.search.step", "without Grid only"},
		"profile: step of Bisection":    {"gpuprofiles", measured, edits{"spec.search": map[string]any{"strategy": "Bisection", "step": int64(15)}}, "spec.search.step", "divisor of 100"},
		"profile: sm of Bisection":      {"gpuprofiles", measuredTemplate, edits{"spec.search.strategy": "Bisection"}, "spec.search.strategy", "with Grid only"},
		"profile: strategy":             {"gpuprofiles", measured, edits{"spec.search.strategy": "Binary"}, "spec.search.strategy", "Unsupported value"},
		"profile: trials":               {"gpuprofiles", measured, edits{"spec.search.maxTrials": int64(201)}, "spec.search.maxTrials", "less than or equal to 200"},
		"profile: stale at once":        {"gpuprofiles", measured, edits{"spec.staleAfter": "1m"}, "spec.staleAfter", "want a duration of 1h"},
		"training of a function":        {"gpuprofiles", measured, edits{"spec.training": map[string]any{}, "spec.search.strategy": "Bisection"}, "spec.training", "want it with a template"},
		"training with an objective":    {"gpuprofiles", measuredTraining, edits{"spec.slo.latency": "1s"}, "spec.slo", "nor with training"},
		"training with a protocol":      {"gpuprofiles", measuredTraining, edits{"spec.protocol": "OIP"}, "spec.training", "without protocol"},
		"training with a request":       {"gpuprofiles", measuredTraining, edits{"spec.request.path": "/"}, "spec.training", "without protocol"},
		"training without Bisection":    {"gpuprofiles", measuredTraining, edits{"spec.search": nil}, "spec.search.strategy", "want Bisection"},
		"training in batches":           {"gpuprofiles", measuredTraining, edits{"spec.search.maxBatch": int64(2)}, "spec.search.strategy", "want Bisection"},
		"training: steady at once":      {"gpuprofiles", measuredTraining, edits{"spec.training.steady": "5s"}, "spec.training.steady", "want a duration of 15s to 60s"},
		"profile and share":             {"gpufunctions", shortest, edits{"spec.profileRef.name": "x", "spec.resources.share": map[string]any{"sm": int64(1), "memory": "1Gi"}}, "spec.profileRef", "want neither"},
		"profile and rate":              {"gpufunctions", shortest, edits{"spec.profileRef.name": "x", "spec.scaling.requestsPerSecond": int64(1)}, "spec.profileRef", "want neither"},
		"profile of another autoscaler": {"gpufunctions", external, edits{"spec.profileRef.name": "x"}, "spec.profileRef", "no other autoscaler"},
		"pipeline without a rate":       {"gpufunctions", shortest, edits{"spec.pipeline.stages": stages("1g.10gb", "9ms")}, "spec.pipeline", "want scaling.requestsPerSecond"},
		"pipeline with a share": {"gpufunctions", shortest, edits{"spec.pipeline.stages": stages("1g.10gb", "9ms"), "spec.scaling.requestsPerSecond": int64(1),
			"spec.resources.share": map[string]any{"sm": int64(1), "memory": "1Gi"}}, "spec.pipeline", "neither resources.share"},
		"a stage on no MIG profile": {"gpufunctions", shortest, edits{"spec.pipeline.stages": stages("gpu", "9ms"), "spec.scaling.requestsPerSecond": int64(1)}, "profile", "should match"},
		"a stage of no time":        {"gpufunctions", shortest, edits{"spec.pipeline.stages": stages("1g.10gb", "0s"), "spec.scaling.requestsPerSecond": int64(1)}, "time", "want a duration of up to 1h"},
		"no profile's name":         {"gpufunctions", shortest, edits{"spec.profileRef.name": "A"}, "spec.profileRef.name", "want lower-case"},

		"Native without a template": {"gpufunctions", external, edits{"spec.scaling.autoscaler": nil}, "spec.template", "want a template, unless"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stored(t, tc.plural, tc.edits.apply(objects(t, "", tc.object)[0]))
			if err == nil || !strings.Contains(err.Error(), tc.field) || !strings.Contains(err.Error(), tc.why) {
				t.Errorf("%v\nwant %s: %s", err, tc.field, tc.why)
			}
		})
	}
}

// TestFaSTPodScale: an autoscaler can read and set the number of pods through the scale subresource, without knowing the kind, and the
// function of a FaSTPod cannot be changed.
func TestFaSTPodScale(t *testing.T) {
	defineServing(t)
	pods := resource("fastpods")
	o := objects(t, "", scaled)[0]
	set(o, "spec.functionRef.name", "resnet50")
	keep(t, "fastpods", o)
	patch := func(text string, subresources ...string) (*unstructured.Unstructured, error) {
		return pods.Patch(t.Context(), "scaled", types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
	}
	if _, err := patch(`{"spec": {"replicas": 9}, "status": {"replicas": 1, "selector": "app=scaled"}}`, "status"); err != nil {
		t.Fatal(err)
	}
	scale, err := patch(`{"spec": {"replicas": 3}}`, "scale")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"spec": map[string]any{"replicas": int64(3)}, "status": map[string]any{"replicas": int64(1), "selector": "app=scaled"}}
	got := map[string]any{"spec": scale.Object["spec"], "status": scale.Object["status"]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scale (-want +got):\n%s", diff)
	}
	o, err = pods.Get(t.Context(), "scaled", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); n != 3 || o.GetGeneration() != 2 {
		t.Errorf("%d replicas, generation %d; want 3 and 2: the status is not part of the specification", n, o.GetGeneration())
	}
	for _, text := range []string{`{"spec": {"functionRef": {"name": "bert"}}}`, `{"spec": {"functionRef": null}}`} {
		if _, err := patch(text); err == nil || !strings.Contains(err.Error(), "spec.functionRef") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// writeStatus writes the status of an object. Fields that the server does not know are errors.
func writeStatus(t *testing.T, plural, name string, status any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err := resource(plural).Patch(t.Context(), name, types.MergePatchType, text, options, "status"); err != nil {
		t.Fatal(err)
	}
}

// TestServingColumns: kubectl get prints the same columns for a function as gshare serve.
func TestServingColumns(t *testing.T) {
	defineServing(t)
	keep(t, "gpufunctions", objects(t, "", shortest)[0])
	status := serving.GPUFunctionStatus{
		ObservedGeneration: 1, Replicas: 4, ReadyReplicas: 4, Residency: serving.ResidencyCounts{Hot: 3, Shared: 1}, Pods: "3+1+0", Share: "12%-24%",
		Observed:   serving.Observed{RequestsPerSecond: "212", P99: "61ms", Hit: "99.4%"},
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}},
	}
	writeStatus(t, "gpufunctions", "resnet50", status)
	keep(t, "fastpods", objects(t, "", scaled)[0])
	keep(t, "sharepolicies", objects(t, "", limits)[0])
	writeStatus(t, "sharepolicies", "teams", serving.SharePolicyStatus{
		ObservedGeneration: 1, Namespaces: 2, Replicas: 9, SMPercent: 240, Memory: "12200Mi",
		Conditions: []metav1.Condition{{Type: "Exceeded", Status: metav1.ConditionFalse, Reason: "WithinLimits", LastTransitionTime: metav1.Now()}},
	})
	for words, want := range map[string]string{
		"gfn resnet50": "NAME SLO P99 HIT RPS PODS SHARE READY REASON AGE resnet50 69ms 61ms 99.4% 212 3+1+0 12%-24% True Serving",
		"fp scaled":    "NAME SM QUOTA LIMIT MEMORY DESIRED CURRENT READY FUNCTION AGE scaled 12 40 80 1525Mi 1",
		"gsp teams":    "NAME NAMESPACES REPLICAS SM MEMORY EXCEEDED AGE teams 2 9 240 12200Mi False",
		"gshare":       "NAME SM QUOTA",
	} {
		t.Run(words, func(t *testing.T) {
			var got string
			var last error
			err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
				// The server lists a new kind in its categories only a while after it serves the kind, and kubectl caches what it gets.
				t.Setenv("KUBECACHEDIR", t.TempDir())
				var out string
				out, last = run(append([]string{"get"}, strings.Fields(words)...))
				got = strings.Join(strings.Fields(out), " ")
				return last == nil && strings.HasPrefix(got, want), nil
			})
			if err != nil {
				t.Errorf("%v, %v\ngot  %s\nwant %s", err, last, got, want)
			}
		})
	}
}

// TestServingExplain: kubectl explain prints the comments of the Go types, and knows the fields of the pod template.
func TestServingExplain(t *testing.T) {
	defineServing(t)
	for field, want := range map[string]string{
		"gpufunction.spec.slo.latency": "the time within which 99 % of the requests", "sharepolicies.spec.tenants.maxSMPercent": "in percent of a GPU", "fastpods.spec.template.spec.containers.readinessProbe": "container service readiness",
	} {
		t.Run(field, func(t *testing.T) {
			var out string
			err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
				var err error // the server publishes the schema only a while after it serves the kind
				out, err = run([]string{"explain", field})
				return err == nil && strings.Contains(strings.Join(strings.Fields(out), " "), want), nil
			})
			if err != nil {
				t.Errorf("%v\n%s\nwant %s", err, out, want)
			}
		})
	}
}

// lastApplied is the maximum size in bytes of an object that kubectl apply can keep in its annotation.
const lastApplied = 256 << 10

// TestServingDescribed: every field has a description, and each CRD is small enough for the annotation of kubectl apply.
func TestServingDescribed(t *testing.T) {
	for _, o := range build(t, "manifests/serving") {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		t.Run(o.GetName(), func(t *testing.T) {
			text, err := json.Marshal(o)
			if err != nil || len(text) > lastApplied-1024 {
				t.Errorf("%d bytes, %v: kubectl apply can hardly keep them in an annotation", len(text), err)
			}
			versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
			root, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
			least := 500 // mostly those of a pod template
			if _, template, _ := unstructured.NestedMap(root, "properties", "spec", "properties", "template"); !template {
				least = 15
			}
			if fields := described(t, o.GetKind(), root); fields < least {
				t.Errorf("only %d fields, want at least %d", fields, least)
			}
		})
	}
}

// described reports fields without a description, and returns the number of fields. It makes an exception for metadata: the server itself
// describes that of the object, and controller-gen omits its descriptions in pod templates.
func described(t *testing.T, path string, node map[string]any) int {
	t.Helper()
	n := 0
	properties, _ := node["properties"].(map[string]any)
	for name, child := range properties {
		child := child.(map[string]any)
		n++
		if child["description"] == nil && !strings.Contains(path+"."+name, ".metadata") {
			t.Errorf("%s.%s has no description", path, name)
		}
		n += described(t, path+"."+name, child)
	}
	for _, below := range []string{"items", "additionalProperties"} {
		if child, ok := node[below].(map[string]any); ok {
			n += described(t, path, child)
		}
	}
	return n
}

// stages returns one stage of a pipeline, which takes the given time on instances of the profile.
func stages(profile, time string) []any {
	return []any{map[string]any{"name": "a", "memory": "1Gi", "times": []any{map[string]any{"profile": profile, "time": time}}}}
}
