package planner

import (
	"context"
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// setTight says in the status of a plan which groups will have more replicas than planned. The reason is that gshare scales by the rate that a replica
// answers and the number of requests in each second, and half of the seconds have more requests than the mean.
func (p *Planner) setTight(ctx context.Context, object *api.InferencePlan, m *memory, made *made) error {
	if !made.current {
		return nil
	}
	objects, _, err := p.namespace(ctx, object.Namespace)
	if err != nil {
		return err
	}
	m.counts = 0
	var found []string
	status := &made.status
	for at := range status.Groups {
		if text := m.moreThanPlanned(&status.Groups[at], object.Spec.Model, objects, &made.data, status.Cost.Currency); text != "" {
			found = append(found, text)
		}
	}
	c := metav1.Condition{Type: api.ConditionTight, Status: metav1.ConditionFalse, Reason: api.ReasonRoom, ObservedGeneration: object.Generation}
	if len(found) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, api.ReasonNearRate, shortened(strings.Join(found, "; "))
	}
	meta.SetStatusCondition(&status.Conditions, c)
	return nil
}

// moreThanPlanned says why a group will have more replicas than planned, and what they cost. It returns an empty string if the group will not, or if that
// is not known. For a group without a host, it assumes its first function, which has the tightest objective, as the host.
func (m *memory) moreThanPlanned(g *api.PlanGroup, model string, objects map[string]*api.GPUFunction, d *data, currency string) string {
	if g.Mode != api.ModeShare {
		return ""
	}
	name := g.Functions[0].Name
	if g.Host != "" {
		name = g.Host
	}
	f := objects[name]
	if f == nil || f.External() {
		return ""
	}
	config, complete, err := configOf(f, int(g.Batch))
	if err != nil { // the function has no share yet
		return ""
	}
	kept, ok := keep(d, config, presentGroups([]api.PlanGroup{*g}, model)[0].Applications)
	if !ok { // the plan's profile does not contain the function's own share
		return ""
	}
	planned, rate := kept.Config.Instances, kept.Rate()
	expected, ok := m.expected(complete, rate)
	if more := int(math.Round(expected)) - planned; ok && more > 0 {
		cost := kept.Cost / planning.Cost(planned) * planning.Cost(more)
		return fmt.Sprintf("%s: with requestsPerSecond %s, %s requests/s that come at random keep %.2g replicas, where %d would answer them by the latencies: that costs %s %s/h more",
			name, digits(complete.Spec.Scaling.RequestsPerSecond, 3), digits(rate, 3), expected, planned, perHour(cost), currency)
	}
	return ""
}

// expectation holds everything on which a function's mean number of replicas depends.
type expectation struct {
	rate, throughput float64
	min, max         int
	window           string
	out, in          int
}

// maxExpected is the greatest number of remembered results of expected. When it is reached, all are dropped and computed again.
const maxExpected = 256

// expected returns the mean number of replicas of a complete function at a rate. It remembers results, because computing one takes some hundredths of a
// second, or half a second with a window of an hour. It returns false if the number is so large that one replica more or less does not matter, and if enough
// others were computed in this round, because other plans are waiting too.
func (m *memory) expected(f *api.GPUFunction, rate float64) (float64, bool) {
	s := f.Spec.Scaling
	if s.RequestsPerSecond <= 0 || rate/s.RequestsPerSecond > maxCounted {
		return 0, false
	}
	policy := fleet.PolicyOf(f)
	key := expectation{rate, s.RequestsPerSecond, policy.Min, policy.Max, string(s.Window), policy.Out, policy.In}
	if known, ok := m.replicas[key]; ok {
		return known, true
	}
	if policy.Min > maxCounted || m.counts >= maxCounts {
		return 0, false
	}
	m.counts++
	c := scaling.Configuration{Share: f.Share(), Batch: 1, Throughput: scaling.Rate(s.RequestsPerSecond)}
	count, err := scaling.Expected(policy, c, scaling.Rate(rate))
	if err != nil { // the fleet does not run such a function either
		return 0, false
	}
	if len(m.replicas) >= maxExpected {
		clear(m.replicas)
	}
	m.replicas[key] = count
	return count, true
}

// maxCounted is the number of replicas above which expected returns false: one replica is then less than a tenth of the cost.
const maxCounted = 16

// maxCounts is the greatest number of results that are computed in one round of a plan, even if its functions are changed all the time.
const maxCounts = 4
