package function

import (
	"math"
	"strings"
	"testing"
	"time"
)

// well returns a function that has nothing to be found: two replicas are enough, and nearly all requests are in time.
func well() *Facts {
	return &Facts{
		Name: "resnet50", Namespace: "ml", SLO: 69 * time.Millisecond, P99: 61 * time.Millisecond, Hit: 0.994, Rate: 60, Reason: "Serving",
		MaxReplicas: 8, Hot: 2, RequestsPerSecond: 40, Concurrency: 1, KeepShared: "30s",
		Replicas: []Replica{{Pod: "resnet50-x-1", Phase: PhaseReady, Age: time.Hour}, {Pod: "resnet50-x-2", Phase: PhaseReady, Age: time.Minute}},
		Traffic:  &Traffic{During: 10 * time.Second, Requests: 600, Took: 20 * time.Millisecond, Queued: 5 * time.Millisecond},
	}
}

func kindsOf(found []Finding) (all []string) {
	for _, f := range found {
		all = append(all, string(f.Kind))
	}
	return all
}

func TestNothingFound(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"in time":    {func(*Facts) {}, "99.4% of the requests are in time"},
		"idle":       {func(f *Facts) { f.Hit, f.Rate, f.Hot, f.Replicas, f.Traffic = math.NaN(), 0, 0, nil, nil }, "no requests of late"},
		"not ready":  {func(f *Facts) { f.Hit, f.Hot, f.Replicas, f.Traffic = 0.9, 0, nil, nil }, "90.0% of the requests are in time, and nothing here says why"},
		"no traffic": {func(f *Facts) { f.Traffic = nil }, "99.4%"},
		"one warning": {func(f *Facts) { f.Decisions = []Decision{{Text: "NoService: ", Count: 90}} },
			"99.4%"},
	} {
		t.Run(name, func(t *testing.T) {
			f := well()
			test.change(f)
			found := Diagnose(f)
			if len(found) != 1 || found[0].Kind != NothingFound || !strings.Contains(found[0].Detail, test.want) {
				t.Errorf("%+v, want %s", found, test.want)
			}
		})
	}
}

// TestFindings: each finding comes with its numbers and what helps, and not where a fact that it needs is another one.
func TestFindings(t *testing.T) {
	phase := func(p Phase, waits string) func(*Facts) {
		return func(f *Facts) { f.Replicas[1].Phase, f.Replicas[1].Waits = p, waits }
	}
	late := func(f *Facts) { f.Hit = 0.82 }
	for name, test := range map[string]struct {
		change       func(*Facts)
		kind         Kind
		detail, help string
		without      func(*Facts) // with which there is no such finding
	}{
		"invalid": {func(f *Facts) { f.Reason, f.Message = "Invalid", "spec.resources.share.sm: want 1" }, Invalid, "sm: want 1", "correct the field", func(f *Facts) { f.Reason = "Serving" }},
		"backing off": {func(f *Facts) { f.BackOff = "ml/resnet50-1: exited with code 3"; phase(PhaseFailing, "x")(f) }, BackingOff, "exited with code 3", "kubectl logs -n ml resnet50-x-2 --previous",
			func(f *Facts) { f.BackOff = "" }},
		"backing off without pods": {func(f *Facts) { f.BackOff = "its pod cannot be created"; f.Replicas = nil }, BackingOff, "cannot be created", "kubectl describe gpufunction -n ml resnet50",
			func(f *Facts) { f.BackOff = "" }},
		"over its quota": {func(f *Facts) { f.OverQuota = "replica ml/resnet50-2: SharePolicy gold allows 1 replicas" }, QuotaExceeded, "keeps it from growing: replica ml/resnet50-2: SharePolicy gold",
			"greater limit in the SharePolicy", func(f *Facts) { f.OverQuota = "" }},
		"cannot be parked": {func(f *Facts) { f.CannotPark = "replica resnet50-1 cannot be parked" }, CannotPark, "stopped instead of parked: replica resnet50-1",
			"vLLM's sleep mode can be parked", func(f *Facts) { f.CannotPark = "" }},
		"conflict": {func(f *Facts) {
			f.Conflict = "HorizontalPodAutoscaler cpu is told to scale FaSTPod x. It has no effect: delete it"
		}, Conflict, "HorizontalPodAutoscaler cpu is told to scale FaSTPod x",
			"It has no effect: delete it", func(f *Facts) { f.Conflict = "" }},
		"failing":        {phase(PhaseFailing, "container server: CrashLoopBackOff"), Failing, "resnet50-x-2 fails: container server: CrashLoopBackOff", "kubectl logs", phase(PhaseReady, "")},
		"failed earlier": {func(f *Facts) { f.Reason, f.Message = "Failing", "ml/resnet50-2: was evicted" }, Failing, "was evicted", "kubectl describe", func(f *Facts) { f.Reason = "Serving" }},
		"no room": {phase(PhasePending, "waits for a node: 0/3 nodes are available"), NoRoom, "1 replica has no node, the first since 1m0s: waits for a node: 0/3",
			"gshare explain -n ml resnet50-x-2", phase(PhaseReady, "")},
		"starting": {phase(PhaseStarting, "waits until its readiness probe succeeds"), Starting, "1 replica starts, the first for 1m0s: waits until", "greater scaling.minReplicas", phase(PhaseReady, "")},
		"first one starts": {func(f *Facts) { phase(PhaseStarting, "waits")(f); f.Replicas = f.Replicas[1:] }, Starting, "1 replica starts", "scaling.minReplicas: 1 keeps one ready",
			func(f *Facts) { f.Replicas = nil }},
		"unprofiled": {func(f *Facts) { f.Unprofiled = true }, Unprofiled, "at most 1 replica", "set resources.share and scaling.requestsPerSecond", func(f *Facts) { f.Unprofiled = false }},
		"measured": {func(f *Facts) { f.Unprofiled, f.Profile = true, "first" }, Unprofiled, "at most 1 replica", "GPUProfile first measures both: kubectl get gpuprofiles -n ml first",
			func(f *Facts) { f.Unprofiled = false }},
		"limit, late": {func(f *Facts) { late(f); f.Hot, f.MaxReplicas = 2, 2 }, AtLimit, "maxReplicas is 2, and the load is 60/s where each is said to answer 40/s", "greater scaling.maxReplicas",
			func(f *Facts) { f.MaxReplicas = 3 }},
		"limit, load": {func(f *Facts) { f.Rate, f.MaxReplicas = 100, 2 }, AtLimit, "100/s", "greater scaling.maxReplicas", func(f *Facts) { f.Rate = 80 }},
		"limit, several sizes": {func(f *Facts) { f.Rate, f.MaxReplicas, f.Least, f.Together = 75, 2, 20, 60 }, AtLimit, "the load is 75/s where all are said to answer 60/s together", "greater scaling.maxReplicas",
			func(f *Facts) { f.Together = 80 }},
		"all refused": {func(f *Facts) {
			f.SLO = 2 * time.Millisecond
			f.Traffic.Refusals = map[string]int{"predicted-late": 300, "deadline-passed": 290}
		}, AllRefused,
			"590 of 600 requests of the last 10s were refused as too late: the objective of 2ms", "longer slo.latency", func(f *Facts) { f.Traffic.Refusals["predicted-late"] = 200 }},
		"few refused": {func(f *Facts) { f.Traffic.Requests, f.Traffic.Refusals = 10, map[string]int{"predicted-late": 9} }, AllRefused, "9 of 10", "", func(f *Facts) {
			f.Traffic.Requests, f.Traffic.Refusals = 9, map[string]int{"predicted-late": 9}
		}},
		// 600 requests took 40 ms without the queue on the average, of which 300 were refused at once: those that were answered took 80 ms.
		"small share": {func(f *Facts) {
			f.Traffic.Took, f.Traffic.Refusals = 45*time.Millisecond, map[string]int{"predicted-late": 300}
		}, ShareTooSmall,
			"takes 80ms at a replica, without the wait before: more than the objective of 69ms", "larger resources.share", func(f *Facts) { f.Traffic.Refusals = nil }},
		"small share, many at once": {func(f *Facts) { f.Traffic.Took, f.Concurrency = 90*time.Millisecond, 4 }, ShareTooSmall, "85ms", "scaling.concurrency is 4",
			func(f *Facts) { f.Traffic.Queued = 80 * time.Millisecond }},
		"too optimistic": {late, TooOptimistic, "82.0% of the requests are in time though each replica gets 30/s and is said to answer 40/s; a request waits 5ms", "smaller scaling.requestsPerSecond",
			func(f *Facts) { f.Rate = 81 }},
		"too optimistic, several sizes": {func(f *Facts) { late(f); f.Least, f.Together = 20, 60 }, TooOptimistic, "in time though the load is 60/s and all are said to answer 60/s together", "smaller scaling.requestsPerSecond",
			func(f *Facts) { f.Together = 50 }},
		"too optimistic, none starts": {late, TooOptimistic, "82.0%", "smaller", phase(PhaseStarting, "")},
		"cold starts": {func(f *Facts) {
			f.Decisions = []Decision{{Scaled: true, ColdStart: true, Up: true, Count: 2}, {Scaled: true, ColdStart: true, Up: true, Count: 1}}
		}, ColdStarts,
			"3 cold starts in the last hour", "keepShared longer than 30s", func(f *Facts) { f.Decisions[0].ColdStart, f.Decisions[1].ColdStart = false, false }},
		"flapping": {func(f *Facts) { f.Decisions = []Decision{{Scaled: true, Up: true, Count: 5}, {Scaled: true, Count: 4}} }, Flapping, "5 times one more and 4 times one less", "minReplicas",
			func(f *Facts) { f.Decisions[1].Count = 3 }},
		"refused": {func(f *Facts) { f.Traffic.Refusals = map[string]int{"predicted-late": 3, "hold-full": 1, "other": 0} }, Refused,
			"4 of 600 requests of the last 10s were refused: 1 hold-full, 3 predicted-late", "", func(f *Facts) { f.Traffic.Refusals = map[string]int{"other": 0} }},
	} {
		t.Run(name, func(t *testing.T) {
			f := well()
			test.change(f)
			found := Diagnose(f)
			one := find(found, test.kind)
			if one == nil || !strings.Contains(one.Detail, test.detail) || !strings.Contains(one.Help, test.help) {
				t.Errorf("%+v\nwant %s: %s (%s)", found, test.kind, test.detail, test.help)
			}
			test.without(f)
			if found = Diagnose(f); find(found, test.kind) != nil {
				t.Errorf("%q found all the same", kindsOf(found))
			}
		})
	}
}

func find(found []Finding, k Kind) *Finding {
	for at := range found {
		if found[at].Kind == k {
			return &found[at]
		}
	}
	return nil
}

// TestOrder: what refuses everything comes first, whatever else there is.
func TestOrder(t *testing.T) {
	f := well()
	f.BackOff, f.Hit, f.MaxReplicas, f.Replicas[0].Phase = "fails", 0.1, 2, PhasePending
	f.Decisions = []Decision{{Scaled: true, ColdStart: true, Count: 1}}
	if got := strings.Join(kindsOf(Diagnose(f)), " "); got != "BackingOff NoRoom AtLimit ColdStarts" {
		t.Error(got)
	}
}

// TestTraffic: what is counted is the difference of two readings of all gateways, of one function.
func TestTraffic(t *testing.T) {
	read := func(texts ...string) *counters {
		c := &counters{refusals: map[string]float64{}}
		for _, text := range texts {
			if err := c.add([]byte(text), "ml", "f"); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	metrics := func(requests, took, queued, late string) string {
		return `# TYPE gshare_gateway_request_duration_seconds histogram
gshare_gateway_request_duration_seconds_bucket{function="f",namespace="ml",le="+Inf"} ` + requests + `
gshare_gateway_request_duration_seconds_sum{function="f",namespace="ml"} ` + took + `
gshare_gateway_request_duration_seconds_count{function="f",namespace="ml"} ` + requests + `
gshare_gateway_request_duration_seconds_sum{function="f",namespace="other"} 99
gshare_gateway_request_duration_seconds_count{function="f",namespace="other"} 99
# TYPE gshare_gateway_queue_duration_seconds histogram
gshare_gateway_queue_duration_seconds_bucket{function="f",namespace="ml",le="+Inf"} ` + requests + `
gshare_gateway_queue_duration_seconds_sum{function="f",namespace="ml"} ` + queued + `
gshare_gateway_queue_duration_seconds_count{function="f",namespace="ml"} ` + requests + `
# TYPE gshare_gateway_refusals_total counter
gshare_gateway_refusals_total{function="f",namespace="ml",reason="predicted-late"} ` + late + `
gshare_gateway_refusals_total{function="g",namespace="ml",reason="predicted-late"} 77
`
	}
	before := read(metrics("10", "1", "0.5", "1"), metrics("0", "0", "0", "0"))
	after := read(metrics("20", "2", "1", "3"), metrics("10", "1", "0.5", "0"))
	got := between(before, after, 10*time.Second)
	if got.Requests != 20 || got.Took != 100*time.Millisecond || got.Queued != 50*time.Millisecond || got.Refusals["predicted-late"] != 2 || len(got.Refusals) != 1 {
		t.Errorf("%+v", got)
	}
	if got := between(after, before, time.Second); got.Requests != 0 || got.Took != 0 || len(got.Refusals) > 0 {
		t.Errorf("a gateway that began again: %+v", got)
	}
	if err := before.add([]byte("no metrics {"), "ml", "f"); err == nil {
		t.Error("any text is taken")
	}
}
