package main

import (
	"net"
	"net/http"
	"testing"

	client "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape reads the metrics of an agent.
func scrape(t *testing.T, address string) map[string]*client.MetricFamily {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.2:0") // no outgoing connection takes its port until it is used: those come from 127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// TestMetricsOfARun scrapes an agent while a program runs, and after its end.
func TestMetricsOfARun(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, "debugAddress: "+address)
	b.start(t)
	run := b.run(t, "a", 60, 50, "--", b.program("spin"), kernel)
	eventually(t, "use is measured", func() bool {
		family := scrape(t, address)["gshare_share_busy_seconds_total"]
		return family != nil && family.Metric[0].Counter.GetValue() > 0
	})
	families := scrape(t, address)
	for name, want := range map[string]float64{
		"gshare_share_sm_ratio": 0.6, "gshare_share_quota_request_ratio": 0.5, "gshare_share_quota_limit_ratio": 0.5,
		"gshare_share_memory_limit_bytes": 1 << 30, "gshare_share_processes": 1, "gshare_share_leased_sessions": 0,
	} {
		t.Run(name, func(t *testing.T) {
			if family := families[name]; family == nil || family.Metric[0].Gauge.GetValue() != want {
				t.Errorf("%s: %v, want %v", name, family, want)
			}
		})
	}
	waits := families["gshare_share_token_wait_seconds"].Metric[0].Histogram
	if tokens := families["gshare_share_tokens_total"].Metric[0].Counter.GetValue(); tokens < 1 || waits.GetSampleCount() < 1 {
		t.Errorf("%v tokens, waits %v", tokens, waits)
	}
	if families["process_start_time_seconds"] == nil || families["go_goroutines"] == nil {
		t.Error("the process itself is not shown")
	}
	run.Kill()
	eventually(t, "nothing is left of the run", func() bool {
		return scrape(t, address)["gshare_share_processes"] == nil
	})
}
