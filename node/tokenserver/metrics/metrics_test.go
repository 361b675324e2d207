package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	client "github.com/prometheus/client_model/go"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// fixedSource is a source with fixed values.
type fixedSource struct {
	statuses []tokenserver.Status
	counters tokenserver.Counters
}

func (s fixedSource) Snapshot() []tokenserver.Status { return s.statuses }
func (s fixedSource) Counters() tokenserver.Counters { return s.counters }

func example() fixedSource {
	v := tokenserver.VGPUStatus{
		Share: share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: 250, QuotaLimit: 500, Memory: 1 << 30},
		UUID:  "GPU-0", Total: 1500 * time.Millisecond, Used: 1 << 20, Peak: 3 << 20, Tokens: 7, LeasedSessions: 2, SelfPaced: 1,
		Processes: make([]tokenserver.ProcessStatus, 3),
		Waits:     tokenserver.Waits{Count: 4, Sum: 6 * time.Second, Stalls: 1},
		Overruns:  token.Overruns{Caused: 3 * time.Second, Suffered: 2 * time.Second, Debt: time.Second},
	}
	v.Waits.Buckets[0], v.Waits.Buckets[2], v.Waits.Buckets[len(v.Waits.Buckets)-1] = 2, 1, 1
	other := v
	other.Index, other.UUID = 1, "GPU-1"
	return fixedSource{
		[]tokenserver.Status{{ID: "a", VGPUs: []tokenserver.VGPUStatus{v, other}}, {ID: "b", VGPUs: []tokenserver.VGPUStatus{v}}},
		tokenserver.Counters{Sessions: 5, Reconnects: 2, Refused: map[tokenserver.Reason]uint64{tokenserver.TooFast: 3, tokenserver.Silent: 0}},
	}
}

func gather(t *testing.T, s fixedSource) map[string]*client.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // holds what is collected to what is described
	registry.MustRegister(New(s))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*client.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

func TestValues(t *testing.T) {
	families := gather(t, example())
	for name, want := range map[string]float64{
		"gshare_share_sm_ratio": 0.6, "gshare_share_quota_request_ratio": 0.25, "gshare_share_quota_limit_ratio": 0.5,
		"gshare_share_busy_seconds_total": 1.5, "gshare_share_memory_limit_bytes": 1 << 30, "gshare_share_memory_used_bytes": 1 << 20, "gshare_share_memory_peak_bytes": 3 << 20,
		"gshare_share_processes": 3, "gshare_share_leased_sessions": 2, "gshare_share_self_paced_processes": 1, "gshare_share_tokens_total": 7, "gshare_share_stalls_total": 1,
		"gshare_share_overrun_seconds_total": 3, "gshare_share_delayed_seconds_total": 2, "gshare_share_debt_seconds": 1,
	} {
		t.Run(name, func(t *testing.T) {
			f := families[name]
			if len(f.GetMetric()) != 3 {
				t.Fatalf("%d series for 3 vGPUs", len(f.GetMetric()))
			}
			if got := f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue(); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	for name, want := range map[string]float64{"gshare_sessions_total": 5, "gshare_session_reconnects_total": 2} {
		t.Run(name, func(t *testing.T) {
			if got := families[name].GetMetric()[0].GetCounter().GetValue(); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	for _, m := range families["gshare_refused_total"].GetMetric() {
		want := map[string]float64{"too_fast": 3, "silent": 0}[m.Label[0].GetValue()]
		if m.Counter.GetValue() != want {
			t.Errorf("refused: %v", m)
		}
	}
}

// TestWaits checks that buckets are cumulative, and that a wait longer than all bounds is in none.
func TestWaits(t *testing.T) {
	h := gather(t, example())["gshare_share_token_wait_seconds"].Metric[0].Histogram
	last := len(h.Bucket) - 1
	if h.GetSampleCount() != 4 || h.GetSampleSum() != 6 || h.Bucket[0].GetCumulativeCount() != 2 || h.Bucket[1].GetCumulativeCount() != 2 ||
		h.Bucket[2].GetCumulativeCount() != 3 || h.Bucket[last].GetCumulativeCount() != 3 || h.Bucket[last].GetUpperBound() != 5 {
		t.Errorf("got %v", h)
	}
}

// TestNames checks names and units against the conventions of Prometheus.
func TestNames(t *testing.T) {
	problems, err := testutil.CollectAndLint(New(example()))
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err != nil {
		t.Error(err)
	}
}
