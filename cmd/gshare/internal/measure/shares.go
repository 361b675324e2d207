package measure

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Share holds the size of one vGPU's share and the counters of its use at one time, from the agent's metrics.
type Share struct {
	Node, Slice, Namespace, Pod, Container string
	VGPU                                   string
	SM, Quota, QuotaLimit                  float64 // parts of one
	MemoryLimit, MemoryUsed                int64   // bytes
	Busy                                   time.Duration
	Stalls                                 float64
	Processes                              float64
	Closed                                 string // reason why the slice accepts no new pods; empty if it does
}

// Parse parses a node agent's metrics and returns the shares, sorted by namespace, pod, container and vGPU.
func Parse(node string, text []byte) ([]Share, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse metrics of node %s: %w", node, err)
	}
	owners := map[string]map[string]string{} // labels with the pod, by the container's ID at the token server
	for _, m := range families["gshare_node_grant_info"].GetMetric() {
		labels := labelsOf(m)
		owners[labels["container"]] = labels
	}
	closed := map[string]string{} // by the UUID of the slice
	for _, m := range families["gshare_node_slice_closed"].GetMetric() {
		labels := labelsOf(m)
		closed[labels["uuid"]] = labels["reason"]
	}
	var shares []Share
	for _, m := range families["gshare_share_sm_ratio"].GetMetric() {
		labels := labelsOf(m)
		owner := owners[labels["container"]]
		value := func(name string) float64 { return valueOf(families["gshare_share_"+name], labels) }
		shares = append(shares, Share{
			Node: node, Slice: labels["device"], VGPU: labels["vgpu"],
			Namespace: owner["namespace"], Pod: owner["pod"], Container: owner["name"],
			SM: value("sm_ratio"), Quota: value("quota_request_ratio"), QuotaLimit: value("quota_limit_ratio"),
			MemoryLimit: int64(value("memory_limit_bytes")), MemoryUsed: int64(value("memory_used_bytes")),
			Busy:   time.Duration(value("busy_seconds_total") * float64(time.Second)),
			Stalls: value("stalls_total"), Processes: value("processes"), Closed: closed[labels["device"]],
		})
	}
	slices.SortFunc(shares, func(a, b Share) int { return strings.Compare(a.key(), b.key()) })
	return shares, nil
}

// key returns a string that identifies the share: namespace, pod, container and vGPU. Sorted keys are in the order of Parse.
func (s *Share) key() string {
	return strings.Join([]string{s.Namespace, s.Pod, s.Container, s.VGPU, s.Node, s.Slice}, "\x00")
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// valueOf returns the value of the metric with the same device, container and vGPU, or zero if there is none.
func valueOf(family *dto.MetricFamily, labels map[string]string) float64 {
	for _, m := range family.GetMetric() {
		other := labelsOf(m)
		if other["device"] == labels["device"] && other["container"] == labels["container"] && other["vgpu"] == labels["vgpu"] {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return 0
}

// Use holds a share and how much of it was used between two samples.
type Use struct {
	Node       string `json:"node"`
	Slice      string `json:"slice"`
	Container  string `json:"container"` // namespace/pod/container
	VGPU       string `json:"vgpu"`
	SM         int64  `json:"smPerMille"`
	Quota      int64  `json:"quotaPerMille"` // guaranteed
	QuotaLimit int64  `json:"quotaLimitPerMille"`
	Used       int64  `json:"usedPerMille"` // of the time
	Memory     int64  `json:"memoryLimitBytes"`
	MemoryUsed int64  `json:"memoryUsedBytes"`
	Stalls     int64  `json:"stalls"`
	Short      bool   `json:"short"`            // it had to wait and got less than its quota
	Closed     string `json:"closed,omitempty"` // reason why the slice accepts no new pods
}

// tolerance is the fraction of the time, in per mille, by which a share may miss its quota before it is reported as short: processes report
// their use with a delay.
const tolerance = 20

// Between returns the use of the shares that appear in both of two samples, taken the given interval apart.
func Between(before, after []Share, interval time.Duration) []Use {
	uses := []Use{} // an empty list in JSON, too
	known := map[string]*Share{}
	for i := range before {
		known[before[i].key()] = &before[i]
	}
	for i := range after {
		s := &after[i]
		old := known[s.key()]
		if old == nil || s.Busy < old.Busy || interval <= 0 { // a restarted token server counts from zero
			continue
		}
		u := Use{
			Node: s.Node, Slice: s.Slice, Container: s.Namespace + "/" + s.Pod + "/" + s.Container, VGPU: s.VGPU,
			SM: perMille(s.SM), Quota: perMille(s.Quota), QuotaLimit: perMille(s.QuotaLimit),
			Used: perMille(float64(s.Busy-old.Busy) / float64(interval)), Memory: s.MemoryLimit, MemoryUsed: s.MemoryUsed,
			Stalls: int64(s.Stalls - old.Stalls), Closed: s.Closed,
		}
		u.Short = u.Stalls > 0 && u.Used+tolerance < u.Quota
		uses = append(uses, u)
	}
	return uses
}

func perMille(part float64) int64 { return int64(part*1000 + 0.5) }
