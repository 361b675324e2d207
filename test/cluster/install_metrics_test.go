package cluster_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/monitoring"
)

// watched evaluates the dashboard's queries and the alerts with Prometheus' engine over the metrics of the installed agents and schedulers.
// Every query must have a result, except those about functions, since there are none, and no alert may fire.
func (i *installed) watched(t *testing.T) {
	t.Helper()
	judge, err := monitoring.BuildEvaluator("../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := float64(time.Now().Unix())
	// A rate needs two samples; how they differ is irrelevant here.
	scrapes := append(i.scrape(t, now-240), i.scrape(t, now)...)
	for _, q := range load(t, monitoring.Dashboard) {
		if got := answer(t, judge, scrapes, now, q); len(got.Results) == 0 && !ofFunctions.MatchString(q.Expr) {
			t.Errorf("dashboard, %s: nothing for %s", q.Name, q.Expr)
		}
	}
	for _, q := range load(t, monitoring.Alerts) {
		if got := answer(t, judge, scrapes, now, q); len(got.Results) != 0 {
			t.Errorf("%s fires: %+v", q.Name, got.Results)
		}
	}
	reserved := monitoring.Query{Name: "reserved", Expr: `sum by (namespace) (gshare_node_grant_sm_time_ratio)`}
	if got := answer(t, judge, scrapes, now, reserved).Results; len(got) != 1 || got[0].Value != "0.24" || got[0].Labels["namespace"] != "default" {
		t.Errorf("reserved: %+v, want 0.24 in default", got)
	}
}

// ofFunctions matches the metrics of gateways and of the controller.
var ofFunctions = regexp.MustCompile(`gshare_(gateway|fleet)_`)

func load(t *testing.T, from func(string) ([]monitoring.Query, error)) []monitoring.Query {
	t.Helper()
	return must[[]monitoring.Query](t)(from("../.."))
}

func answer(t *testing.T, j monitoring.Evaluator, scrapes []monitoring.Scrape, at float64, q monitoring.Query) monitoring.Result {
	t.Helper()
	answers, err := j.Evaluate(scrapes, at, q)
	if err != nil || answers[0].Error != "" {
		t.Fatalf("%s: %v %s", q.Name, err, answers[0].Error)
	}
	return answers[0]
}

// scrape returns the metrics that Prometheus would scrape from all of gshare's pods, with the labels that it would add.
func (i *installed) scrape(t *testing.T, at float64) (all []monitoring.Scrape) {
	t.Helper()
	pods, err := i.Client().CoreV1().Pods("gshare-system").List(i.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		app, url := pod.Labels["app"], "https://"+pod.Status.PodIP+":10259/metrics"
		if app == "gshare-node" {
			url = "http://127.0.0.1:9477/metrics"
		}
		all = append(all, monitoring.Scrape{
			Time: at, Text: "up 1\n" + i.fetch(t, i.node(pod.Spec.NodeName), url),
			Labels: map[string]string{"job": app, "instance": pod.Name, "namespace": pod.Namespace, "pod": pod.Name},
		})
	}
	if len(all) != 3 {
		t.Fatalf("%d pods", len(all))
	}
	return all
}

func (i *installed) fetch(t *testing.T, node *cluster.Node, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(i.ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+i.Token(access.Admin))
	client := http.Client{Transport: &http.Transport{
		DialContext: node.Machine.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the server creates its own certificate
	}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("%s: %s %w", url, response.Status, err))
	}
	return string(text)
}
