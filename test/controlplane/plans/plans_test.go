// Package plans_test runs the planner of gshare-controller against a real API server, with the permissions that the manifests give it.
package plans_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/serving/report"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// server is an administrator's client configuration for the API server that the tests share.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunWith(func(plane *controlplane.ControlPlane) int {
		server = plane.Config(access.Admin)
		ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler)) // without a logger, controller-runtime complains with a stack trace
		return m.Run()
	}))
}

const root = "../../../"

// data has the latencies of a model in all modes, and its layers. The best partition of the layers was not measured.
const data = `models:
- name: vision
  cpu:
    mean: [{alpha: 2.6, beta: 0.45, gamma: 0.21}]
    p99: [{alpha: 3.1, beta: 0.45, gamma: 0.27}]
    memoryMiB: {slope: 40, intercept: 700}
  gpu:
    exclusive: {slope: 0.0018, intercept: 0.0025}
    tail: {slope: 1.2, intercept: 0}
    cardGB: 24
    timeSlice: 0.002
    memoryMiB: {slope: 30, intercept: 600}
    hostMemoryMiB: {slope: 0, intercept: 512}
    maxBatch: 32
  share:
    curves: [{sm: 120, exclusive: {slope: 0.0060, intercept: 0.0030}}, {sm: 240, exclusive: {slope: 0.0033, intercept: 0.0027}}]
    tail: {slope: 1.1, intercept: 0}
    window: 0.1
    memoryMiB: {slope: 30, intercept: 1500}
    maxBatch: 16
`

// stages has the measurements of a model that is partitioned into stages.
const stages = `  partitioned:
    stages:
    - workers: [{mean: [{alpha: 0.6, beta: 0.4, gamma: 0.05}], p99: [{alpha: 0.7, beta: 0.4, gamma: 0.06}], memoryMiB: {slope: 30, intercept: 150}}]
    - workers: [{mean: [{alpha: 0.9, beta: 0.4, gamma: 0.07}], p99: [{alpha: 1.1, beta: 0.4, gamma: 0.09}], memoryMiB: {slope: 20, intercept: 400}}]
    transfer: {slope: 0.004, intercept: 0.012}
    master: {milliCPU: 100, memoryMiB: 128}
`

// chain lists the model's layers.
const chain = `chains:
- model: vision
  input: 600000
  layers:
  - {name: stem, work: 2, weights: 400000000, output: 800000}
  - {name: head, work: 2, weights: 400000000, output: 4000}
`

const prices = `prices: {currency: USD, nanoPerVCPUSecond: 16000, nanoPerGBSecond: 2400, nanoPerGPUGBSecond: 34000, nanoPerCall: 120, nanoPerSliceSecond: 500000, nanoPerSliceGBSecond: 1500}
`

// TestPlans: with the permissions of the manifests, plans of each mode appear in the status of their objects and in the output of kubectl get. A
// changed price leads to a new plan, and a plan that cannot be made says why.
func TestPlans(t *testing.T) {
	admin := install(t)
	startController(t)
	ctx := t.Context()
	create(t, admin, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", Labels: map[string]string{api.LabelPlanData: ""}},
		Data: map[string]string{"whole": data + stages, "layers": data + chain, "prices": prices}})
	create(t, admin, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "private"}, Data: map[string]string{"whole": data}})
	for name, slo := range map[string]api.Duration{"checkout": "700ms", "archive": "4s"} {
		create(t, admin, &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: api.GPUFunctionSpec{
			SLO: api.SLO{Latency: slo}, Scaling: api.Scaling{Autoscaler: api.External, RequestsPerSecond: 5},
		}})
	}
	plan := func(name string, mode api.ExecutionMode, profiles, key string) {
		create(t, admin, &api.InferencePlan{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: api.InferencePlanSpec{
			Model: "vision", Functions: []api.PlannedFunction{{Name: "checkout", RequestsPerSecond: 3}, {Name: "archive", RequestsPerSecond: 0.5}},
			Modes: []api.ExecutionMode{mode}, Profiles: api.DataReference{ConfigMap: profiles, Key: key}, Prices: api.DataReference{ConfigMap: "data", Key: "prices"},
		}})
	}
	modes := []api.ExecutionMode{api.ModeShare, api.ModeCPU, api.ModeGPU, api.ModePartitioned}
	for _, mode := range modes {
		plan(strings.ToLower(string(mode)), mode, "data", "whole")
	}
	plan("layers", api.ModeShare, "data", "layers")
	plan("private", api.ModeShare, "private", "whole")
	for _, mode := range modes {
		got := await(ctx, t, admin, strings.ToLower(string(mode)), "True Planned first plan")
		if len(got.Status.Groups) == 0 || got.Status.Groups[0].Mode != mode || got.Status.Cost.Planned == "" || got.Status.Misses == "" {
			t.Errorf("%s: %+v", mode, got.Status)
		}
	}
	await(ctx, t, admin, "private", "False NoData spec.profiles: there is no ConfigMap private with the label")
	if got := await(ctx, t, admin, "layers", "True Planned"); len(got.Status.Notes) != 1 || !strings.Contains(got.Status.Notes[0], "measure stages up to layers") {
		t.Errorf("notes %q", got.Status.Notes)
	}
	first := printed(t, "share")
	for column, want := range map[string]string{"Mode": "Recommend", "Saving": "", "Planned": "True", "Reason": "Planned"} {
		if value, ok := first[column]; !ok || want != "" && value != want {
			t.Errorf("column %s: %v of %v, want %s", column, value, first, want)
		}
	}
	prices := &v1.ConfigMap{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "data"}, prices); err != nil {
		t.Fatal(err)
	}
	prices.Data["prices"] = strings.ReplaceAll(prices.Data["prices"], "500000", "1000000")
	if err := admin.Update(ctx, prices); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, admin, "share", "True Planned the modes, profiles, prices or given rates have changed")
	if then := printed(t, "share"); then["Planned/h"] == first["Planned/h"] {
		t.Errorf("costs %v as before the price rose", then["Planned/h"])
	}
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// await waits until a plan's condition Planned, written as status, reason and message, begins with want.
func await(ctx context.Context, t *testing.T, c client.Client, name, want string) *api.InferencePlan {
	t.Helper()
	return awaitCondition(ctx, t, c, name, api.ConditionPlanned, want)
}

func awaitCondition(ctx context.Context, t *testing.T, c client.Client, name, condition, want string) *api.InferencePlan {
	t.Helper()
	plan := &api.InferencePlan{}
	until(ctx, t, name, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, plan); err != nil {
			return err
		}
		now := ""
		if is := meta.FindStatusCondition(plan.Status.Conditions, condition); is != nil {
			now = string(is.Status) + " " + is.Reason + " " + is.Message
		}
		if !strings.HasPrefix(now, want) {
			return fmt.Errorf("%q, want %q", now, want)
		}
		return nil
	})
	return plan
}

// until repeats what may fail for a while until it succeeds. If it does not succeed, the test ends with the last error.
func until(ctx context.Context, t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// printed returns the columns that kubectl get prints for a plan.
func printed(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := kubernetes.NewForConfigOrDie(server).RESTClient().Get().AbsPath("/apis/serving.gshare.dev/v1alpha1/namespaces/default/inferenceplans/"+name).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(text, &table); err != nil || len(table.Rows) != 1 {
		t.Fatal(err, string(text))
	}
	cells := map[string]any{}
	for i, c := range table.ColumnDefinitions {
		cells[c.Name] = table.Rows[0].Cells[i]
	}
	return cells
}

// install creates the CRDs of serving and the controller's permissions, and returns an administrator's client.
func install(t *testing.T) client.Client {
	t.Helper()
	scheme, err := controller.Scheme()
	if err == nil {
		err = extensions.AddToScheme(scheme)
	}
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(o client.Object) { // another test may have created it
		t.Helper()
		if err := admin.Create(t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	for _, text := range manifests.ServingDefinitions() {
		kind := &extensions.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, kind); err != nil {
			t.Fatal(err)
		}
		ensure(kind)
	}
	ensure(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gshare-system"}})
	text, err := os.ReadFile(root + "manifests/serving/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	permissions := 0
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(document, &is); err != nil {
			t.Fatal(err)
		}
		o, ok := map[string]client.Object{
			"ClusterRole": &rbac.ClusterRole{}, "ClusterRoleBinding": &rbac.ClusterRoleBinding{}, "Role": &rbac.Role{}, "RoleBinding": &rbac.RoleBinding{},
		}[is.Kind]
		if !ok {
			continue
		}
		if err := yaml.Unmarshal(document, o); err != nil {
			t.Fatal(err)
		}
		ensure(o)
		permissions++
	}
	if permissions < 2 {
		t.Fatalf("%d objects with permissions", permissions)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{&api.GPUFunctionList{}, &api.FaSTPodList{}, &api.InferencePlanList{}} {
			if admin.List(ctx, list) != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// startController runs the controller with the permissions of its service account, until stop is called or the test ends.
func startController(t *testing.T) (stop func()) {
	t.Helper()
	as := rest.CopyConfig(server)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:gshare-system:gshare-controller"}
	service := client.ObjectKey{Namespace: "gshare-system", Name: "gshare-gateway-reports"}
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cached, err := controller.CacheOptions(service)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ctrl.NewManager(as, manager.Options{Scheme: scheme, Cache: cached, Metrics: metrics.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)}}) // since the tests start several controllers, one after another
	if err != nil {
		t.Fatal(err)
	}
	err = controller.AddTo(m, controller.Options{
		Service: service, Gateway: "gateway.example", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: prometheus.NewRegistry(),
		Watch: func(context.Context, string, func(report.Report)) error { return errors.New("there are no gateways") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
