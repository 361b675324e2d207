package enforce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// elastic is a share of class elastic.
func elastic(request, limit share.PerMille) share.Share {
	return share.Share{SMRequest: request, SMLimit: limit, QuotaRequest: 1000, QuotaLimit: 1000, Memory: share.MiB}
}

func TestExplore(t *testing.T) {
	e := enforce.Experiment{Folder: built(t), Elastic: true, Pods: []enforce.Pod{
		{Share: elastic(300, 600), Priority: share.SLO, Load: []string{kernel(500*time.Microsecond, 600), "sync=10", "pause=20000000"}},
		{Share: elastic(500, 900), Priority: share.BestEffort, Load: greedy()},
	}}
	m, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for now := 50 * ms; now <= 3*second; now += 50 * ms {
		if err := m.GPU.Run(now); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprint(now)
		for i := range e.Pods {
			st := m.Served[i].Status().VGPUs[0]
			line += fmt.Sprintf(" | %v sm tokens %d busy %.2f waits %d kernels %d", st.SMsNow, st.Tokens, m.Spans(i).Busy(now-50*ms, now), st.Waits.Count, m.Spans(i).Kernels(now-50*ms, now))
		}
		t.Log(line)
	}
}
