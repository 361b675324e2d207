package monitoring

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/gshare-dev/gshare/test/install/document"
)

const root = "../.."

// alerts lists, for each alert, metrics of a node and the scheduler: those before, those at 600 s with which the alert fires, and
// slightly different ones with which it does not.
var alerts = map[string]struct{ before, fires, silent string }{
	"GShareSchedulerDown":      {"", "other 1\n", `up{job="gshare-scheduler"} 1` + "\n"},
	"GShareAgentDown":          {"", `up{job="gshare-node"} 0` + "\n", `up{job="gshare-node"} 1` + "\n"},
	"GShareProxyDown":          {"", `up{job="gshare-proxy"} 0` + "\n", `up{job="gshare-proxy"} 1` + "\n" + `up{job="gshare-node"} 0` + "\n"},
	"GShareAgentNotRegistered": {"", "gshare_node_registered 0\n", "gshare_node_registered 1\n"},
	"GShareNotPublished":       {"gshare_node_publish_failures_total 0\n", "gshare_node_publish_failures_total 20\n", "gshare_node_publish_failures_total 1\n"},
	"GShareSliceUnhealthy":     {"", `gshare_node_slice_healthy{slice="GPU-0"} 0` + "\n", `gshare_node_slice_healthy{slice="GPU-0"} 1` + "\n"},
	"GShareUnmanagedProcesses": {"", `gshare_node_unmanaged_processes{slice="GPU-0",kind="outside-pods"} 2` + "\n",
		`gshare_node_unmanaged_processes{slice="GPU-0",kind="outside-pods"} 0` + "\n"},
	"GShareBlind": {"", "gshare_node_watch_timestamp_seconds 100\n", "gshare_node_watch_timestamp_seconds 598\n"},
	"GShareShareStarved": {share(0, 0), share(60, 9), share(60, 0) + // uses little, but does not want more
		`gshare_share_busy_seconds_total{container="b"} 300` + "\n" + `gshare_share_stalls_total{container="b"} 9` + "\n"},
	"GShareMemoryNearLimit": {"", memory(96), memory(95)},
	"GShareStartsRefused":   {starts(0, 0), starts(0, 9), starts(100, 1)},
	"GShareBindsInDoubt": {`gshare_scheduler_binds_total{result="ambiguous"} 0` + "\n", `gshare_scheduler_binds_total{result="ambiguous"} 50` + "\n",
		`gshare_scheduler_binds_total{result="ambiguous"} 1` + "\n"},

	"GShareControllerDown": {"", `up{job="gshare-controller"} 0` + "\n", `up{job="gshare-controller",pod="a"} 0` + "\n" + `up{job="gshare-controller",pod="b"} 1` + "\n"},
	"GShareControllerLeaderless": {"", `up{job="gshare-controller"} 1` + "\n" + leads(0, 0),
		`up{job="gshare-controller"} 1` + "\n" + leads(0, 1)},
	"GShareGatewayDown":             {"", `up{job="gshare-gateway"} 0` + "\n", `up{job="gshare-gateway"} 1` + "\n"},
	"GShareFunctionFails":           {answers(0, 0), answers(100, 10), answers(100, 4)},
	"GShareReplicasFail":            {`gshare_fleet_failures_total{function="f"} 0` + "\n", `gshare_fleet_failures_total{function="f"} 9` + "\n", `gshare_fleet_failures_total{function="f"} 1` + "\n"},
	"GShareFunctionWithoutReplicas": {"", waiting(3, 0), waiting(3, 1)},
	"GShareReplicasStartSlowly":     {"", `gshare_fleet_replicas{function="f",phase="starting"} 1` + "\n", `gshare_fleet_replicas{function="f",phase="starting"} 0` + "\n" + `gshare_fleet_replicas{function="f",phase="ready"} 1` + "\n"},
}

// quiet lists metrics with which no alert of serving may fire: serving is not installed, or no requests come.
var quiet = []string{"", "other 1\n", answers(2, 1), waiting(0, 0)}

// answers returns the request counters of a function whose first request came just before the previous scrape.
func answers(all, failed int) string {
	return fmt.Sprintf("gshare_gateway_requests_total{namespace=\"ml\",function=\"f\",code=\"200\"} %d\ngshare_gateway_requests_total{namespace=\"ml\",function=\"f\",code=\"429\"} %d\n", all-failed, failed)
}

func leads(a, b int) string {
	return fmt.Sprintf("leader_election_master_status{name=\"gshare-controller\",pod=\"a\"} %d\nleader_election_master_status{name=\"gshare-controller\",pod=\"b\"} %d\n", a, b)
}

func waiting(requests, ready int) string {
	return fmt.Sprintf("gshare_fleet_requests{namespace=\"ml\",function=\"f\",state=\"waiting\"} %d\ngshare_fleet_replicas{namespace=\"ml\",function=\"f\",phase=\"ready\"} %d\n", requests, ready)
}

func share(busy, stalls int) string {
	return fmt.Sprintf("gshare_share_quota_request_ratio{container=\"a\"} 0.5\ngshare_share_quota_request_ratio{container=\"b\"} 0.5\n"+
		"gshare_share_busy_seconds_total{container=\"a\"} %d\ngshare_share_stalls_total{container=\"a\"} %d\n", busy, stalls)
}

func memory(used int) string {
	return fmt.Sprintf("gshare_share_memory_limit_bytes 100\ngshare_share_memory_used_bytes %d\n", used)
}

func starts(granted, refused int) string {
	return fmt.Sprintf("gshare_node_starts_total{result=\"granted\"} %d\ngshare_node_starts_total{result=\"NoRoom\"} %d\n", granted, refused)
}

// TestAlerts: each alert fires when it should, and only then.
func TestAlerts(t *testing.T) {
	judge, all := build(t), load(t, Alerts)
	if len(all) != len(alerts) {
		t.Errorf("%d alerts, of which %d are tried", len(all), len(alerts))
	}
	for _, a := range all {
		said, ok := alerts[a.Name]
		if !ok {
			t.Errorf("%s is not tried", a.Name)
			continue
		}
		for text, want := range map[string]bool{said.fires: true, said.silent: false} {
			// The first value is scraped twice, from the beginning on, so that a rate covers only the change at the end.
			scrapes := []Scrape{{Time: 0, Text: said.before}, {Time: 320, Text: said.before}, {Time: 600, Text: text}}
			answers, err := judge.Evaluate(scrapes, 600, a)
			if err != nil || answers[0].Error != "" {
				t.Fatalf("%s: %v %s", a.Name, err, answers[0].Error)
			}
			if got := len(answers[0].Results) > 0; got != want {
				t.Errorf("%s fires %v, want %v, for:\n%s", a.Name, got, want, text)
			}
		}
	}
}

// TestServingAlertsAreQuiet: no alert of serving fires where serving is not installed, or no requests come.
func TestServingAlertsAreQuiet(t *testing.T) {
	judge, tried := build(t), 0
	for _, a := range load(t, Alerts) {
		if !regexp.MustCompile("Controller|Gateway|Function|Replicas").MatchString(a.Name) {
			continue
		}
		tried++
		for _, text := range quiet {
			answers, err := judge.Evaluate([]Scrape{{Time: 0, Text: text}, {Time: 320, Text: text}, {Time: 600, Text: text}}, 600, a)
			if err != nil || answers[0].Error != "" || len(answers[0].Results) > 0 {
				t.Errorf("%s fires (%v) for %q: %+v", a.Name, err, text, answers)
			}
		}
	}
	if tried != 7 {
		t.Errorf("%d alerts of serving", tried)
	}
}

// TestDashboard: Prometheus accepts every query of the dashboard. Their results are tested on a real cluster (test/cluster).
func TestDashboard(t *testing.T) {
	judge, all := build(t), load(t, Dashboard)
	answers, err := judge.Evaluate(nil, 600, append(all, Query{"wrong", "sum(rate(x[5m])"})...)
	if err != nil || len(all) < 15 {
		t.Fatalf("%v; %d queries", err, len(all))
	}
	for i, q := range all {
		if answers[i].Error != "" {
			t.Errorf("%s: %s", q.Name, answers[i].Error)
		}
	}
	if answers[len(all)].Error == "" {
		t.Error("a wrong query passes")
	}
}

// TestDocuments: Prometheus accepts every query in the documentation.
func TestDocuments(t *testing.T) {
	judge, asked := build(t), 0
	blocks, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Language != "promql" {
			continue
		}
		asked++
		answers, err := judge.Evaluate(nil, 0, Query{Name: b.File, Expr: b.Text})
		if err != nil || answers[0].Error != "" {
			t.Errorf("%s: %v %s", b.File, err, answers[0].Error)
		}
	}
	if asked < 2 {
		t.Errorf("only %d queries", asked)
	}
}

func build(t *testing.T) Evaluator {
	t.Helper()
	judge, err := BuildEvaluator(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return judge
}

func load(t *testing.T, from func(string) ([]Query, error)) []Query {
	t.Helper()
	all, err := from(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPanels: each panel of the dashboard says what it shows.
func TestPanels(t *testing.T) {
	var d struct {
		Panels []struct{ Type, Title, Description string }
	}
	if err := read(root, "dashboard.json", &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Description) < len("A sentence of words.") {
			t.Errorf("%s has the description %q", p.Title, p.Description)
		}
	}
	if len(d.Panels) < 15 {
		t.Errorf("%d panels", len(d.Panels))
	}
}
