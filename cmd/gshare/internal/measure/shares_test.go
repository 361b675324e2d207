package measure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/node/tokenserver/metrics"
)

// text is what an agent with shares of two containers says; busy is that of the first.
func text(busy, stalls float64) []byte {
	var b strings.Builder
	line := func(name, container string, value float64) {
		fmt.Fprintf(&b, "gshare_share_%s{device=\"GPU-1\",container=%q,vgpu=\"0\"} %g\n", name, container, value)
	}
	for name, values := range map[string][2]float64{
		"sm_ratio": {0.25, 1}, "quota_request_ratio": {0.4, 1}, "quota_limit_ratio": {0.8, 1}, "busy_seconds_total": {busy, 100},
		"memory_limit_bytes": {1 << 30, 2 << 30}, "memory_used_bytes": {1 << 20, 0}, "stalls_total": {stalls, 0},
	} {
		kind := "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		fmt.Fprintf(&b, "# TYPE gshare_share_%s %s\n", name, kind)
		line(name, "c1", values[0])
		line(name, "c2", values[1])
	}
	b.WriteString("gshare_node_grant_info{container=\"c1\",namespace=\"ml\",pod=\"a\",name=\"main\"} 1\n")
	b.WriteString("gshare_node_grant_info{container=\"c2\",namespace=\"ml\",pod=\"b\",name=\"main\"} 1\n")
	return []byte(b.String())
}

func looked(t *testing.T, busy, stalls float64) []Share {
	t.Helper()
	shares, err := Parse("n1", text(busy, stalls))
	if err != nil || len(shares) != 2 {
		t.Fatalf("%v: %+v", err, shares)
	}
	return shares
}

func TestBetween(t *testing.T) {
	for name, c := range map[string]struct {
		busy, stalls float64 // after ten seconds
		used         int64
		short        bool
	}{
		"its quota":         {104, 5, 400, false},
		"more":              {107, 0, 700, false},
		"less, not waiting": {101, 0, 100, false},
		"less, and waiting": {101, 5, 100, true},
		"a little less":     {103.9, 5, 390, false},
	} {
		t.Run(name, func(t *testing.T) {
			uses := Between(looked(t, 100, 0), looked(t, c.busy, c.stalls), 10*time.Second)
			if len(uses) != 2 {
				t.Fatalf("%+v", uses)
			}
			u := uses[0]
			if u.Container != "ml/a/main" || u.Used != c.used || u.Short != c.short || u.SM != 250 || u.Quota != 400 || u.QuotaLimit != 800 ||
				u.Memory != 1<<30 || u.MemoryUsed != 1<<20 || u.Node != "n1" || u.Slice != "GPU-1" {
				t.Errorf("%+v", u)
			}
		})
	}
	if uses := Between(looked(t, 100, 0), looked(t, 3, 0), time.Second); len(uses) != 1 {
		t.Errorf("a counter that was reset: %+v", uses)
	}
	if uses := Between(nil, looked(t, 3, 0), time.Second); len(uses) != 0 {
		t.Errorf("shares seen once: %+v", uses)
	}
	if _, err := Parse("n1", []byte("gshare{")); err == nil || !strings.Contains(err.Error(), "n1") {
		t.Error(err)
	}
}

// What is read has to be what the token server exports.
func TestNames(t *testing.T) {
	exported := make(chan *prometheus.Desc, 100)
	metrics.New(nil).Describe(exported)
	close(exported)
	var all strings.Builder
	for d := range exported {
		all.WriteString(d.String())
	}
	for _, name := range []string{"sm_ratio", "quota_request_ratio", "quota_limit_ratio", "memory_limit_bytes", "memory_used_bytes", "busy_seconds_total", "stalls_total", "processes"} {
		if !strings.Contains(all.String(), `"gshare_share_`+name+`"`) {
			t.Errorf("nobody exports gshare_share_%s", name)
		}
	}
}
