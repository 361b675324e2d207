package planner

import (
	"fmt"
	"math"
	"strconv"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// modes maps the modes of the API to those of package planning.
var modes = map[api.ExecutionMode]planning.Mode{
	api.ModeShare: planning.Share, api.ModeCPU: planning.CPU, api.ModeGPU: planning.GPU, api.ModePartitioned: planning.Partitioned,
}

func modeOf(m planning.Mode) api.ExecutionMode {
	for mode, own := range modes {
		if own == m {
			return mode
		}
	}
	return ""
}

// statusGroups returns groups in the form of a status.
func statusGroups(groups []planning.Group, m *profile.Model) []api.PlanGroup {
	var all []api.PlanGroup
	for i := range groups {
		g := &groups[i]
		one := api.PlanGroup{
			Mode: modeOf(g.Config.Mode), On: shortened(g.Config.String()), Batch: int32(g.Config.Batch), Replicas: int32(g.Config.Instances),
			MilliCPU: int64(g.Config.CPU), GPUGB: int32(g.Config.GPUGB),
			P99: durationOf(g.P99), Cost: perHour(g.Cost), Misses: part(g.Misses(m)),
		}
		switch {
		case g.Config.Mode == planning.Share:
			one.Share = &api.Share{SM: new(int64(g.Config.SM / percent)), Quota: new(int64(g.Config.Quota / percent)), Memory: quantity(g.Config.Memory)}
		case g.Config.Memory > 0:
			one.Memory = quantity(g.Config.Memory)
		}
		for _, stage := range g.Config.Workers {
			var sizes []int64
			for _, c := range stage {
				sizes = append(sizes, int64(c))
			}
			one.Stages = append(one.Stages, api.PlanStage{MilliCPUs: sizes})
		}
		for at, a := range g.Applications {
			one.Functions = append(one.Functions, api.GroupMember{
				Name: a.Name, SLO: api.Duration(timeOf(a.SLO).String()), RequestsPerSecond: digits(a.Rate, 3), Timeout: durationOf(g.Timeouts[at]),
			})
		}
		all = append(all, one)
	}
	return all
}

// presentGroups returns the groups of a status, with what planning.Keep needs of them: the status is the planner's memory.
func presentGroups(status []api.PlanGroup, model string) []planning.Group {
	var all []planning.Group
	for i := range status {
		one := &status[i]
		g := planning.Group{Config: planning.Config{
			Mode: modes[one.Mode], Batch: int(one.Batch), CPU: profile.MilliCPU(one.MilliCPU), GPUGB: int(one.GPUGB), Memory: bytesOf(one.Memory), Instances: int(one.Replicas),
		}}
		if s := one.Share; s != nil && s.SM != nil && s.Quota != nil {
			g.Config.SM, g.Config.Quota, g.Config.Memory = share.PerMille(*s.SM)*percent, share.PerMille(*s.Quota)*percent, bytesOf(s.Memory)
		}
		for _, stage := range one.Stages {
			var sizes []profile.MilliCPU
			for _, c := range stage.MilliCPUs {
				sizes = append(sizes, profile.MilliCPU(c))
			}
			g.Config.Workers = append(g.Config.Workers, sizes)
		}
		for _, f := range one.Functions {
			g.Applications = append(g.Applications, planning.Application{Name: f.Name, Model: model, SLO: seconds(f.SLO.Value()), Rate: number(f.RequestsPerSecond)})
		}
		all = append(all, g)
	}
	return all
}

// basisOf returns what the plan in a status was based on.
func basisOf(s *api.InferencePlanStatus) planning.Basis {
	b := planning.Basis{Data: s.DataHash, Applications: map[string]planning.Observed{}}
	for _, g := range s.Groups {
		for _, f := range g.Functions {
			b.Applications[f.Name] = planning.Observed{SLO: seconds(f.SLO.Value()), Rate: number(f.RequestsPerSecond)}
		}
	}
	for _, f := range s.Unplanned {
		b.Applications[f.Name] = planning.Observed{SLO: seconds(f.SLO.Value()), Rate: number(f.RequestsPerSecond)}
	}
	return b
}

func timeOf(s profile.Seconds) time.Duration {
	return time.Duration(math.Round(float64(s) * 1e9))
}

// durationOf returns a predicted time, rounded for readers.
func durationOf(s profile.Seconds) api.Duration {
	d := timeOf(s)
	unit := time.Microsecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return api.Duration(d.Round(unit).String())
}

func seconds(d time.Duration) profile.Seconds { return profile.Seconds(d.Seconds()) }

func quantity(b share.Bytes) api.Quantity {
	return api.Quantity(fmt.Sprintf("%dMi", (b+share.MiB-1)/share.MiB))
}

func bytesOf(q api.Quantity) share.Bytes {
	parsed, _ := q.Parse() // 0 on an error: no group can be kept with no memory
	return share.Bytes(parsed.Value())
}

// perHour returns a cost, given in nano-units per second, per hour.
func perHour(c planning.Cost) string { return digits(float64(c)*3600/1e9, 3) }

// part returns a fraction from 0 to 1 as a percentage, rounded up so that a prediction does not look better than it is.
func part(x float64) string {
	if x <= 0 {
		return "0%"
	}
	x *= 100
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return digits(min(math.Ceil(x/unit-1e-9)*unit, 100), 3) + "%"
}

// saving returns the fraction of now that planned saves, in whole percent.
func saving(now, planned planning.Cost) string {
	if now <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Round(100*float64((now-planned)/now)))) + "%"
}

// digits returns a number with n significant digits and without an exponent.
func digits(x float64, n int) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'e', n-1, 64), 64) // never fails: the text is a formatted number
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

func number(text string) float64 {
	x, _ := strconv.ParseFloat(text, 64) // 0 on an error: no requests
	return x
}

// maxText is the greatest length of the texts of a status.
const maxText = 1024

func shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText-len("...")] + "..."
}
