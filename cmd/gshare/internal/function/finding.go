package function

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Finding is one reason why a function's requests are late or its number of replicas does not change, and what would help.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Detail string `json:"detail"`
	Help   string `json:"help,omitempty"`
}

// Kind names a finding in one word, for programs.
type Kind string

// The findings, in the order in which they are reported: those because of which all requests are refused come first.
const (
	Invalid       Kind = "Invalid"       // the specification is invalid
	BackingOff    Kind = "BackingOff"    // every replica has failed, and requests are refused
	Failing       Kind = "Failing"       // a replica fails
	QuotaExceeded Kind = "QuotaExceeded" // a policy does not let a replica start
	NoRoom        Kind = "NoRoom"        // the scheduler finds no room for a replica
	Starting      Kind = "Starting"      // a replica is not ready yet
	Unprofiled    Kind = "Unprofiled"    // share or throughput are not set, so it is not scaled
	AtLimit       Kind = "AtLimit"       // requests are late although there are maxReplicas replicas
	ShareTooSmall Kind = "ShareTooSmall" // a replica takes longer than the objective, even without any wait
	AllRefused    Kind = "AllRefused"    // the gateway refuses nearly every request as too late
	TooOptimistic Kind = "TooOptimistic" // a replica cannot answer requestsPerSecond in time
	ColdStarts    Kind = "ColdStarts"    // requests waited for a first replica
	Flapping      Kind = "Flapping"      // replicas come and go
	CannotPark    Kind = "CannotPark"    // replicas are stopped instead of parked
	Conflict      Kind = "Conflict"      // another autoscaler is configured to scale it
	Refused       Kind = "Refused"       // the gateway refuses some requests
	NothingFound  Kind = "NothingFound"
)

// missed reports whether too many requests are late: fewer than 99 % are in time.
func (f *Facts) missed() bool { return f.Hit < 0.99 } // false for NaN

// Diagnose returns why requests are late, as far as the facts tell, the gravest reason first. There is at least one finding.
func Diagnose(f *Facts) []Finding {
	var found []Finding
	for _, rule := range []func(*Facts) *Finding{
		invalid, backingOff, failing, quotaExceeded, noRoom, starting, unprofiled, atLimit, allRefused, shareTooSmall, tooOptimistic, coldStarts, flapping,
		conflict, cannotPark, refused,
	} {
		if one := rule(f); one != nil {
			found = append(found, *one)
		}
	}
	if len(found) == 0 {
		found = append(found, nothing(f))
	}
	return found
}

func invalid(f *Facts) *Finding {
	if f.Reason != string(Invalid) {
		return nil
	}
	return &Finding{Invalid, "the object cannot be obeyed: " + f.Message, "correct the field that the message names"}
}

func backingOff(f *Facts) *Finding {
	if f.BackOff == "" {
		return nil
	}
	return &Finding{BackingOff, "all replicas fail, and requests are refused until one starts: " + f.BackOff, f.logsHelp()}
}

// logsHelp returns the command that shows why replicas fail.
func (f *Facts) logsHelp() string {
	for _, r := range f.Replicas {
		if r.Phase == PhaseFailing {
			return "kubectl logs -n " + f.Namespace + " " + r.Pod + " --previous"
		}
	}
	return "kubectl describe gpufunction -n " + f.Namespace + " " + f.Name
}

func failing(f *Facts) *Finding {
	if f.BackOff != "" {
		return nil
	}
	if r := f.first(PhaseFailing); r != nil {
		return &Finding{Failing, "replica " + r.Pod + " fails: " + r.Waits, f.logsHelp()}
	}
	if f.Reason == string(Failing) {
		return &Finding{Failing, "a replica fails: " + f.Message, f.logsHelp()}
	}
	return nil
}

// first returns the first replica in a phase, nil if there is none.
func (f *Facts) first(p Phase) *Replica {
	if at := slices.IndexFunc(f.Replicas, func(r Replica) bool { return r.Phase == p }); at >= 0 {
		return &f.Replicas[at]
	}
	return nil
}

func (f *Facts) count(p Phase) (n int) {
	for _, r := range f.Replicas {
		if r.Phase == p {
			n++
		}
	}
	return n
}

func quotaExceeded(f *Facts) *Finding {
	if f.OverQuota == "" {
		return nil
	}
	return &Finding{QuotaExceeded, "a policy keeps it from growing: " + f.OverQuota, "fewer replicas of other functions of the namespace, or a greater limit in the SharePolicy, which administrators write"}
}

func conflict(f *Facts) *Finding {
	if f.Conflict == "" {
		return nil
	}
	what, help, _ := strings.Cut(f.Conflict, ". ")
	return &Finding{Conflict, what, help}
}

func cannotPark(f *Facts) *Finding {
	if f.CannotPark == "" {
		return nil
	}
	return &Finding{CannotPark, "replicas are stopped instead of parked: " + f.CannotPark,
		"a server with Triton's model repository or vLLM's sleep mode can be parked; a change of the function has it tried again"}
}

func noRoom(f *Facts) *Finding {
	r := f.first(PhasePending)
	if r == nil {
		return nil
	}
	return &Finding{NoRoom, fmt.Sprintf("%s no node, the first since %s: %s", countOf(f.count(PhasePending), "replica has", "replicas have"), short(r.Age), r.Waits),
		"gshare explain -n " + f.Namespace + " " + r.Pod + " shows what would make it fit"}
}

func starting(f *Facts) *Finding {
	r := f.first(PhaseStarting)
	if r == nil {
		return nil
	}
	help := "scaling.minReplicas: 1 keeps one ready"
	if f.MinReplicas > 0 || f.count(PhaseReady) > 0 {
		help = "a greater scaling.minReplicas starts it before the load comes"
	}
	return &Finding{Starting, fmt.Sprintf("%s, the first for %s: %s", countOf(f.count(PhaseStarting), "replica starts", "replicas start"), short(r.Age), r.Waits), help}
}

func unprofiled(f *Facts) *Finding {
	if !f.Unprofiled {
		return nil
	}
	help := "set resources.share and scaling.requestsPerSecond, which gshare profile and a GPUProfile measure; with spec.request, what to ask a replica, gshare measures them by itself"
	if f.Profile != "" {
		help = fmt.Sprintf("GPUProfile %s measures both: kubectl get gpuprofiles -n %s %[1]s shows how far it is", f.Profile, f.Namespace)
	}
	return &Finding{Unprofiled, fmt.Sprintf("it is not scaled, and has at most %s: the share or what a replica answers is not set", countOf(max(1, f.MinReplicas), "replica", "replicas")),
		help}
}

// answered returns the declared throughput of the Hot replicas together or, if all replicas have the same share, of the given number of
// replicas.
func (f *Facts) answered(replicas int) float64 {
	if f.Together > 0 {
		return f.Together
	}
	return float64(replicas) * f.RequestsPerSecond
}

// saidToAnswer returns the declared throughput of the Hot replicas, in words.
func (f *Facts) saidToAnswer() string {
	if f.Together > 0 {
		return fmt.Sprintf("all are said to answer %.3g/s together", f.Together)
	}
	return fmt.Sprintf("each is said to answer %.3g/s", f.RequestsPerSecond)
}

func atLimit(f *Facts) *Finding {
	if f.Unprofiled || f.Hot < f.MaxReplicas || !f.missed() && f.Rate <= f.answered(f.MaxReplicas) {
		return nil
	}
	return &Finding{AtLimit, fmt.Sprintf("the limit is reached: scaling.maxReplicas is %d, and the load is %.3g/s where %s", f.MaxReplicas, f.Rate, f.saidToAnswer()),
		"a greater scaling.maxReplicas, or a larger share with a greater requestsPerSecond"}
}

// late holds the reasons with which the gateway refuses requests that are late, or that it predicts to be.
var late = []string{"predicted-late", "deadline-passed"}

func (t *Traffic) late() (n int) {
	for _, reason := range late {
		n += t.Refusals[reason]
	}
	return n
}

// fewRequests is the number of requests below which averages over them mean nothing.
const fewRequests = 10

func allRefused(f *Facts) *Finding {
	t := f.Traffic
	if t == nil || t.Requests < fewRequests || float64(t.late()) < 0.9*float64(t.Requests) {
		return nil
	}
	return &Finding{AllRefused, fmt.Sprintf("%d of %d requests of the last %s were refused as too late: the objective of %s is below what a replica takes", t.late(), t.Requests, short(t.During), f.SLO),
		"a longer slo.latency, or a larger resources.share"}
}

func shareTooSmall(f *Facts) *Finding {
	t := f.Traffic
	if t == nil || t.Requests-t.refused() < fewRequests {
		return nil
	}
	at := t.atReplica()
	if at <= f.SLO {
		return nil
	}
	help := "a larger resources.share, or a longer slo.latency"
	if f.Concurrency > 1 {
		help += fmt.Sprintf("; scaling.concurrency is %d, and fewer requests at once are faster each", f.Concurrency)
	}
	return &Finding{ShareTooSmall, fmt.Sprintf("a request takes %s at a replica, without the wait before: more than the objective of %s", milliseconds(at), f.SLO), help}
}

// refused returns the number of requests that were refused.
func (t *Traffic) refused() (n int) {
	for _, one := range t.Refusals {
		n += one
	}
	return n
}

// atReplica returns the mean time that a request spent at a replica. Refused requests reach no replica, so they do not count.
func (t *Traffic) atReplica() time.Duration {
	return time.Duration(float64(t.Took-t.Queued) * float64(t.Requests) / float64(t.Requests-t.refused()))
}

func tooOptimistic(f *Facts) *Finding {
	ready := f.count(PhaseReady)
	if f.Unprofiled || !f.missed() || ready == 0 || f.Hot >= f.MaxReplicas || f.Rate == 0 || f.Rate > f.answered(f.Hot) ||
		f.first(PhasePending) != nil || f.first(PhaseStarting) != nil || f.first(PhaseFailing) != nil {
		return nil
	}
	detail := fmt.Sprintf("%s are in time though each replica gets %.3g/s and is said to answer %.3g/s", percent(f.Hit), f.Rate/float64(max(1, f.Hot)), f.RequestsPerSecond)
	if f.Together > 0 {
		detail = fmt.Sprintf("%s are in time though the load is %.3g/s and %s", percent(f.Hit), f.Rate, f.saidToAnswer())
	}
	if t := f.Traffic; t != nil && t.Requests >= fewRequests {
		detail += fmt.Sprintf("; a request waits %s for a replica", milliseconds(t.Queued))
	}
	return &Finding{TooOptimistic, detail, "a smaller scaling.requestsPerSecond adds replicas earlier; for bursts a shorter scaling.window"}
}

func coldStarts(f *Facts) *Finding {
	n := 0
	for _, d := range f.Decisions {
		if d.ColdStart {
			n += d.Count
		}
	}
	if n == 0 {
		return nil
	}
	return &Finding{ColdStarts, fmt.Sprintf("%s in the last hour, for which the first requests waited", countOf(n, "cold start", "cold starts")),
		fmt.Sprintf("scaling.keepShared longer than %s keeps the last replica over longer gaps, scaling.minReplicas: 1 always", f.KeepShared)}
}

// oftenScaled is how many times within an hour replicas must have been added, and as often removed, for that to count as flapping.
const oftenScaled = 4

func flapping(f *Facts) *Finding {
	up, down := 0, 0
	for _, d := range f.Decisions {
		switch {
		case d.ColdStart || !d.Scaled:
		case d.Up:
			up += d.Count
		default:
			down += d.Count
		}
	}
	if up < oftenScaled || down < oftenScaled {
		return nil
	}
	return &Finding{Flapping, fmt.Sprintf("replicas come and go: %d times one more and %d times one less in the last hour", up, down),
		"a greater scaling.minReplicas, or a longer scaling.window"}
}

func refused(f *Facts) *Finding {
	t := f.Traffic
	if t == nil || t.refused() == 0 {
		return nil
	}
	var parts []string
	for reason, n := range t.Refusals {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, reason))
		}
	}
	slices.Sort(parts)
	return &Finding{Refused, fmt.Sprintf("%d of %d requests of the last %s were refused: %s", t.refused(), t.Requests, short(t.During), strings.Join(parts, ", ")), ""}
}

func nothing(f *Facts) Finding {
	switch {
	case math.IsNaN(f.Hit):
		return Finding{NothingFound, "there were no requests of late", ""}
	case f.missed():
		return Finding{NothingFound, percent(f.Hit) + " are in time, and nothing here says why not more are", "gshare slo with more load, or a longer --during"}
	}
	return Finding{NothingFound, fmt.Sprintf("%s are in time", percent(f.Hit)), ""}
}

func countOf(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func percent(part float64) string {
	return fmt.Sprintf("%.1f%% of the requests", math.Floor(part*1000)/10)
}

func milliseconds(d time.Duration) string {
	if d >= 100*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

func short(d time.Duration) string { return d.Round(time.Second).String() }
