package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// state is everything that a decision depends on. All of it comes from the cluster, so that the successor of a controller that was killed decides the
// same.
type state struct {
	profile *api.GPUProfile
	plan    *plan
	pods    []*v1.Pod // controlled by the profile
	nodes   []v1.Node
	version string // of gshare
	image   string // of the client: that of this controller
	served  string // image of the function's replicas, with its digest; empty if none is ready
	now     time.Time

	function *api.GPUFunction // nil if the profile has a template
	replicas []v1.Pod         // of the function
}

// decision is the next write to the cluster. There is at most one, so that a crash always falls between two writes.
type decision struct {
	status *api.GPUProfileStatus
	create *v1.Pod
	remove *v1.Pod
	quota  *v1.Pod       // the server, whose quota should become that of status.target
	after  time.Duration // time after which to decide again even if nothing has changed; 0 if that is not needed
}

// Bounds of a trial, and pauses before another look.
const (
	maxAttempts = 2 // attempts in which the server ends or fails; after these, that is the result
	maxClients  = 5 // clients that end without a result or lose their server to the cluster; after these, something is wrong with the cluster
	clientPause = 10 * time.Second
	gpuPause    = 30 * time.Second
	quotaWait   = 30 * time.Second // for the agent on the server's node to change the quota; after that, a new server starts with this quota as its share
	stalePause  = 10 * time.Minute
)

// decide returns the next write.
//
// The status records what is to be done before it is done: first the attempt, then its pods, whose names follow from the attempt. Each pod is
// therefore created only once, whoever creates it, and the trial is found again after a crash; if one of its pods is lost, it begins again.
func (s *state) decide() decision {
	status := s.profile.Status.DeepCopy()
	if status.Plan != s.plan.hash {
		return s.write(s.restart(status))
	}
	target, client := s.find(targetPodName(s.profile, status)), s.find(clientPodName(s.profile, status))
	for _, p := range s.pods {
		if p != target && p != client && p.DeletionTimestamp == nil {
			return decision{remove: p}
		}
	}
	waiting := s.waitingReplica(status)
	switch {
	case s.halted(status):
		return s.review(status)
	case client != nil && kube.Ended(client):
		return s.take(status, target, client)
	case waiting != nil:
		return s.yield(status, waiting)
	case status.Attempt == nil:
		return s.begin(status, target)
	case target == nil && client == nil:
		return s.start(status)
	case isLate(client, s.now):
		return s.waitForClient(status, target, client)
	case target == nil || target.DeletionTimestamp != nil || kube.Ended(target) && disrupted(target):
		return s.lose(status, "the server's pod is gone", true)
	case kube.Ended(target):
		what := "the server ended: "
		if s.plan.progress != nil {
			what = "the training ended before its rate was steady: "
		}
		return s.fail(status, what+cmp.Or(api.Failure(target), target.Status.Reason, "its pod is "+string(target.Status.Phase)))
	case client != nil && client.DeletionTimestamp != nil:
		return s.lose(status, "the client's pod is gone", false)
	}
	return s.measure(status, target, client)
}

// find returns the pod with a name, or nil.
func (s *state) find(name string) *v1.Pod {
	for _, p := range s.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// disrupted reports whether a pod was ended by the cluster rather than by its server.
func disrupted(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
			return true
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return false
		}
	}
	return true // the kubelet refused it
}

// restart returns the status of a profile of which nothing was measured yet.
func (s *state) restart(old *api.GPUProfileStatus) *api.GPUProfileStatus {
	status := &api.GPUProfileStatus{Plan: s.plan.hash, Targets: old.Targets, Conditions: old.Conditions}
	status.Recommended = old.Recommended // until there is another: functions have it
	meta.RemoveStatusCondition(&status.Conditions, api.ConditionStale)
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "")
	return status
}

// halted reports whether nothing remains to be done until the specification changes.
func (s *state) halted(status *api.GPUProfileStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, api.ConditionComplete)
	return c != nil && c.ObservedGeneration == s.profile.Generation && (c.Status == metav1.ConditionTrue || c.Reason == api.ReasonClientFailed)
}

// device returns the kind of GPU to measure on.
func (s *state) device(status *api.GPUProfileStatus) (device, bool) {
	model := s.profile.Spec.Accelerator
	if status.Fingerprint != nil {
		model = cmp.Or(model, status.Fingerprint.Model)
	}
	return deviceOf(s.nodes, model)
}

// begin begins the next trial, or completes the profile if there is none.
func (s *state) begin(status *api.GPUProfileStatus, target *v1.Pod) decision {
	d, found := s.device(status)
	if !found {
		s.set(status, metav1.ConditionFalse, api.ReasonNoGPU, "no node has a whole GPU"+of(s.profile.Spec.Accelerator))
		made := s.write(status)
		made.after = gpuPause
		return made
	}
	record, strategy := recordOf(s.profile.Name, status, d), s.plan.strategy(d.model)
	task, err := record.Next(strategy)
	reason := api.ReasonMeasured
	if err == nil && task != nil && !task.Confirm && len(status.Points) >= s.plan.maxTrials {
		task, reason = record.NextConfirmation(strategy), api.ReasonBudgetUsed
	}
	switch {
	case err != nil:
		s.set(status, metav1.ConditionFalse, api.ReasonInvalid, err.Error())
		return s.write(status)
	case task == nil:
		return s.complete(status, record, d, reason)
	}
	sm, quota := percent(task.Resource.SM), percent(task.Resource.Quota)
	t := status.Target
	if t == nil || t.SM != sm || target == nil || target.DeletionTimestamp != nil || kube.Ended(target) ||
		quota > ownQuota(target) || quota != t.Quota && !canNarrow(target) {
		status.Targets++
		t = &api.ProfileTarget{Number: status.Targets, SM: sm}
	}
	status.Target = &api.ProfileTarget{Number: t.Number, SM: sm, Quota: quota}
	status.Completed = nil
	status.Attempt = &api.ProfileAttempt{Batch: task.Batch, Confirm: task.Confirm, Count: 1, Clients: 1, Since: metav1.NewTime(s.now)}
	status.Current = settingText(sm, quota, task.Batch)
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "")
	return s.write(status)
}

func of(model string) string {
	if model == "" {
		return ""
	}
	return " of the model " + model
}

// start creates the pod with the server.
func (s *state) start(status *api.GPUProfileStatus) decision {
	d, found := s.device(status)
	if !found {
		s.set(status, metav1.ConditionFalse, api.ReasonNoGPU, "no node has a whole GPU"+of(s.profile.Spec.Accelerator))
		made := s.write(status)
		made.after = gpuPause
		return made
	}
	return decision{create: targetPod(s.profile, s.plan, d)}
}

// measure creates the client once the server is ready, and waits until the client ends.
func (s *state) measure(status *api.GPUProfileStatus, target, client *v1.Pod) decision {
	if s.plan.progress != nil {
		return s.watch(status, target)
	}
	address, ready := api.Address(target)
	switch {
	case client == nil && !ready:
		return s.waitForServer(status, target)
	case client == nil && wantedQuota(target) != status.Target.Quota:
		return decision{quota: target}
	case client == nil && enforcedQuota(target) != status.Target.Quota:
		wait := status.Attempt.Since.Add(quotaWait).Sub(s.now)
		if wait > 0 {
			return decision{after: wait}
		}
		return s.replace(status, "the agent of node "+target.Spec.NodeName+" has not changed the quota of the server")
	case client == nil:
		if wait := status.Attempt.Since.Add(time.Duration(status.Attempt.Clients-1) * clientPause).Sub(s.now); wait > 0 {
			return decision{after: wait}
		}
		return decision{create: clientPod(s.profile, s.plan, target, address, s.image)}
	case client.Status.Phase == v1.PodRunning:
		left := measureLimit
		if started := startOf(client); !started.IsZero() {
			left = started.Add(measureLimit).Sub(s.now)
		}
		if left <= 0 {
			return s.lose(status, "the client has not ended within "+measureLimit.String(), false)
		}
		s.set(status, metav1.ConditionFalse, api.ReasonMeasuring, "")
		made := s.write(status)
		made.after = left
		return made
	}
	return s.waitForClient(status, target, client)
}

// take evaluates the outcome that a client has left.
func (s *state) take(status *api.GPUProfileStatus, target, client *v1.Pod) decision {
	o, err := outcomeOf(client, jobOf(s.profile, s.plan, ""))
	switch {
	case err != nil && (target == nil || target.DeletionTimestamp != nil):
		return s.lose(status, err.Error(), true)
	case err != nil:
		return s.lose(status, err.Error(), false)
	case o.Error != "":
		return s.halt(status, o.Error)
	case o.Failed != "" && (target == nil || target.DeletionTimestamp != nil || kube.Ended(target) && disrupted(target)):
		return s.lose(status, "the server's pod is gone", true)
	case o.Failed != "":
		return s.fail(status, o.Failed)
	}
	switch none, wait := s.launchedNone(target, client); {
	case wait > 0:
		return decision{after: min(wait, kube.WorkPeriod)}
	case none:
		return s.giveUp(status, target, client, profiler.ErrNoKernels)
	}
	a, t := status.Attempt, status.Target
	point := measured(t.SM, t.Quota, a.Batch, o.Trial)
	if at := indexOf(status, t.SM, t.Quota, a.Batch); a.Confirm && at >= 0 {
		point = confirmed(status.Points[at], o.Trial)
	}
	return s.keep(status, target, point, client)
}

// launchedNone reports whether a server launched no kernel while a client sent requests, as the agent of its node counts them. wait is positive while the
// agent has not counted up to the end of the client. An agent that does not count, or has stopped to, says nothing.
func (s *state) launchedNone(target, client *v1.Pod) (none bool, wait time.Duration) {
	work := workOf(target)
	started, ended := ranAt(client)
	if work == nil || started.IsZero() || work.Since.Add(milliseconds(work.Changed)).After(started) {
		return false, 0
	}
	if work.Since.Add(milliseconds(work.Counts[len(work.Counts)-1].At)).Before(ended) {
		return false, max(0, ended.Add(workWait).Sub(s.now))
	}
	return true, 0
}

// giveUp ends the profile without a recommendation, because of what one trial has shown.
func (s *state) giveUp(status *api.GPUProfileStatus, target, client *v1.Pod, why error) decision {
	charge(status, &api.ProfilePoint{}, target, client, s.now)
	s.end(status)
	s.set(status, metav1.ConditionTrue, api.ReasonNoShare, why.Error())
	return s.write(status)
}

// keep records a trial. client is nil for a training.
func (s *state) keep(status *api.GPUProfileStatus, target *v1.Pod, point api.ProfilePoint, client *v1.Pod) decision {
	now := fingerprintOf(target, s.nodes, s.version)
	if now != nil && now.MemoryMiB > memoryOf(target) {
		return s.lose(status, "the GPU has more memory than the server, so that it was not alone on it", true)
	}
	if target != nil && enforcedQuota(target) != status.Target.Quota { // an agent that has just started briefly enforces the quota of the whole share
		return s.lose(status, "the server had another quota", false)
	}
	confirms := status.Attempt.Confirm && indexOf(status, point.SM, point.Quota, point.Batch) >= 0
	point.MemoryMiB = max(point.MemoryMiB, usedMiB(target))
	started, ended := ranAt(client)
	if part := gpuTimeOf(target, started, ended); part != nil {
		point.GPUTimePercent = part
	}
	charge(status, &point, target, client, s.now)
	if was := status.Fingerprint; was != nil && now != nil && *was != *now { // trials of another server or another GPU cannot be compared with these
		status.Points = nil
	}
	if now != nil {
		status.Fingerprint = now
	}
	if !confirms || len(status.Points) > 0 { // a confirmation without its first measurement, which was dropped with the other points, is not recorded
		setPoint(status, point)
	}
	status.Attempt, status.Current = nil, ""
	return s.write(status)
}

// fail repeats a trial whose server has ended or failed. After maxAttempts, the failure is the result.
func (s *state) fail(status *api.GPUProfileStatus, reason string) decision {
	a, t := status.Attempt, status.Target
	if a.Count < maxAttempts {
		status.Targets++
		t.Number = status.Targets
		a.Count, a.Clients, a.Since = a.Count+1, 1, metav1.NewTime(s.now)
		s.set(status, metav1.ConditionFalse, api.ReasonStarting, "again: "+reason)
		return s.write(status)
	}
	setPoint(status, api.ProfilePoint{SM: t.SM, Quota: t.Quota, Batch: a.Batch, Failed: bounded(reason, 512)})
	status.Attempt, status.Target, status.Current = nil, nil, ""
	return s.write(status)
}

// lose repeats a trial whose client has ended without a result or whose server was taken away by the cluster; neither says anything about the server
// itself.
func (s *state) lose(status *api.GPUProfileStatus, reason string, server bool) decision {
	a := status.Attempt
	if a.Clients >= maxClients {
		return s.halt(status, reason)
	}
	if server {
		status.Targets++
		status.Target.Number = status.Targets
	}
	a.Clients, a.Since = a.Clients+1, metav1.NewTime(s.now)
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "again: "+reason)
	return s.write(status)
}

// replace repeats a trial with a new server that is given the trial's share from the start.
func (s *state) replace(status *api.GPUProfileStatus, reason string) decision {
	status.Targets++
	status.Target.Number = status.Targets
	status.Attempt.Since = metav1.NewTime(s.now)
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "again: "+reason)
	return s.write(status)
}

// halt ends the measurements until the specification changes.
func (s *state) halt(status *api.GPUProfileStatus, reason string) decision {
	status.Attempt, status.Target, status.Current = nil, nil, ""
	s.set(status, metav1.ConditionFalse, api.ReasonClientFailed, reason)
	return s.write(status)
}

// end sets in the status that the measurements have ended, with no recommendation yet.
func (s *state) end(status *api.GPUProfileStatus) {
	status.Attempt, status.Target, status.Current, status.Recommended = nil, nil, "", nil
	if status.Completed == nil {
		status.Completed = new(metav1.NewTime(s.now))
		status.ReplicasImage = cmp.Or(bounded(s.served, maxImage), status.ReplicasImage)
	}
}

// complete ends the profile.
func (s *state) complete(status *api.GPUProfileStatus, record *profiler.Record, d device, reason string) decision {
	s.end(status)
	best, err := record.Recommend(s.plan.strategy(d.model))
	switch {
	case errors.Is(err, search.ErrUnfinished):
		s.set(status, metav1.ConditionTrue, api.ReasonBudgetUsed, "the search has no result yet: it needs more than the trials that search.maxTrials allows")
	case errors.Is(err, search.ErrNoSetting):
		message := "no share answers requests within the objective"
		if why := record.NeverRan(); why != "" {
			message = "every trial failed, the last with: " + why
		}
		s.set(status, metav1.ConditionTrue, api.ReasonNoShare, message)
	case err != nil:
		s.set(status, metav1.ConditionFalse, api.ReasonInvalid, err.Error())
	default:
		status.Recommended = recommendationOf(best, &s.profile.Spec, d)
		message := ""
		if best.Memory == 0 && s.profile.Spec.Memory == "" {
			message = "the memory was not measured: recommended is all of the GPU's; spec.memory sets another"
		}
		s.set(status, metav1.ConditionTrue, reason, message)
	}
	return s.write(status)
}

// maxMessage bounds the messages of conditions.
const maxMessage = 1024

// set sets the condition Complete.
func (s *state) set(status *api.GPUProfileStatus, value metav1.ConditionStatus, reason, message string) {
	setComplete(status, s.profile.Generation, value, reason, message)
}

func setComplete(status *api.GPUProfileStatus, generation int64, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: api.ConditionComplete, Status: value, Reason: reason, Message: bounded(message, maxMessage), ObservedGeneration: generation,
	})
}

// write returns a decision to write the status, or an empty one if the status has not changed.
func (s *state) write(status *api.GPUProfileStatus) decision {
	status.ObservedGeneration, status.Trials = s.profile.Generation, int32(len(status.Points))
	if equality.Semantic.DeepEqual(&s.profile.Status, status) {
		return decision{}
	}
	return decision{status: status}
}

// review looks whether a profile is stale.
func (s *state) review(status *api.GPUProfileStatus) decision {
	if status.Completed == nil {
		return decision{}
	}
	if hasNewImage(s, status) {
		again := s.restart(status)
		again.ReplicasImage = bounded(s.served, maxImage) // no replica may be ready when the measurement ends
		return s.write(again)
	}
	c := metav1.Condition{Type: api.ConditionStale, Status: metav1.ConditionFalse, Reason: "UpToDate", ObservedGeneration: s.profile.Generation}
	limit := s.profile.Spec.StaleAfter.Value()
	if why := stale(status.Fingerprint, s.nodes, s.version, s.served); why != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Changed", bounded(why, maxMessage)
	} else if limit > 0 && s.now.Sub(status.Completed.Time) >= limit {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Old", "it was measured more than "+limit.String()+" ago"
	}
	meta.SetStatusCondition(&status.Conditions, c)
	made := s.write(status)
	made.after = stalePause
	return made
}

// stale returns what has changed since a profile was measured, or an empty text. image is that of the function's present replicas; empty if unknown.
func stale(was *api.ProfileFingerprint, nodes []v1.Node, version, image string) string {
	if was == nil {
		return ""
	}
	found, driver := false, false
	for at := range nodes {
		for _, s := range slicesOf(&nodes[at]) {
			if s.Profile == "" && s.Model == was.Model && int32(s.SMs) == was.SMs && s.MemoryMiB == was.MemoryMiB {
				found = true
				driver = driver || nodes[at].Labels[labelDriver] == was.Driver
			}
		}
	}
	switch {
	case bounded(version, 128) != was.Gshare:
		return "it was measured with gshare " + was.Gshare + ", which is " + version + " now"
	case !found:
		return "no node has a GPU like the one on which it was measured"
	case !driver:
		return "no node with such a GPU has the driver " + was.Driver + " any more"
	case image != "" && bounded(image, maxImage) != was.Image:
		return "the replicas run the image " + image + ", measured was " + was.Image
	}
	return ""
}

// hasNewImage reports whether a complete profile is to be measured again, as the replicas run another image than was measured. It is once for an image:
// where trials get the earlier one from their node, which has the tag already, it would be for ever. While replicas of two images take turns it is seldom.
func hasNewImage(s *state, status *api.GPUProfileStatus) bool {
	image := bounded(s.served, maxImage)
	return s.profile.Spec.Remeasure == api.RemeasureNewImage && image != "" && image != status.ReplicasImage &&
		status.Fingerprint != nil && image != status.Fingerprint.Image && s.now.Sub(status.Completed.Time) >= remeasurePause
}

// remeasurePause is the least time between the end of a measurement and the next one for a new image.
const remeasurePause = time.Hour

// maxImage bounds the name of an image in a status.
const maxImage = 1024

// waitForServer waits until the server is ready. A server that takes too long to become ready does not run on its share. A server that does not even
// start on its node, for example because its image is missing, would start on no other share either, and would block a GPU all the time.
func (s *state) waitForServer(status *api.GPUProfileStatus, target *v1.Pod) decision {
	why := cmp.Or(api.Failure(target), api.WaitsFor(target))
	if target.Spec.NodeName == "" {
		s.set(status, metav1.ConditionFalse, api.ReasonGPUInUse, s.whyNone(status, why))
		return s.write(status)
	}
	at, limit := controller.OverdueAt(target)
	left := at.Sub(s.now)
	switch {
	case at.IsZero(): // it has no node yet
		left = 0
	case left > 0:
	case isRunning(target):
		return s.fail(status, "the server was not ready within "+limit.String())
	default:
		return s.halt(status, "the server has not started within "+limit.String()+": "+why)
	}
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "server: "+why)
	made := s.write(status)
	made.after = left
	return made
}

// whyNone says why a server has no GPU yet, and what its owner can do. It includes the scheduler's reason.
func (s *state) whyNone(status *api.GPUProfileStatus, scheduler string) string {
	d, found := s.device(status)
	if !found {
		return "server: " + scheduler
	}
	all, own := 0, ""
	for at := range s.nodes {
		for _, slice := range slicesOf(&s.nodes[at]) {
			if slice.Profile != "" || slice.Model != d.model || slice.MemoryMiB < d.memoryMiB {
				continue
			}
			if all++; own == "" {
				own = s.replicaOn(slice.ID)
			}
		}
	}
	if own == "" || all > 1 {
		return fmt.Sprintf("the server waits until one of %d %s is free, with nobody else on it: %s", all, d.model, scheduler)
	}
	idle := "which ends by itself when there are no requests"
	if least := s.function.Spec.Scaling.MinReplicas; least > 0 {
		idle = fmt.Sprintf("which its scaling.minReplicas of %d keeps", least)
	}
	return fmt.Sprintf("the only %s has the replica %s of the function, %s: the server waits until it has gone. Or add a GPU, or write resources.share and scaling.requestsPerSecond of the function",
		d.model, own, idle)
}

// replicaOn returns the name of the function's replica on a slice, or an empty string. If there are several, it always returns the same one, whatever
// their order: a different name would change the condition, and writing that would trigger the next reconciliation.
func (s *state) replicaOn(slice string) (first string) {
	for at := range s.replicas {
		p := &s.replicas[at]
		placement, present, err := kube.PlacementOf(p)
		if err != nil || !present || kube.Ended(p) || first != "" && first < p.Name {
			continue
		}
		for _, c := range placement.Containers {
			if slices.ContainsFunc(c.VGPUs, func(v kube.PlacedVGPU) bool { return v.Slice == slice }) {
				first = p.Name
			}
		}
	}
	return first
}

// waitingReplica returns a replica of the function for which the scheduler has found no place, or nil. If there are several, it always returns the same one.
// It leaves out replicas that could not use the profile's GPU: those that ask for other GPU models, and those held back by a scheduling gate.
func (s *state) waitingReplica(status *api.GPUProfileStatus) (first *v1.Pod) {
	d, found := s.device(status)
	if !found {
		return nil
	}
	for at := range s.replicas {
		p := &s.replicas[at]
		models := p.Annotations[kube.AnnotationModel]
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || models != "" && !slices.Contains(strings.Split(models, ","), d.model) {
			continue
		}
		noPlace := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason != v1.PodReasonSchedulingGated
		})
		if noPlace && (first == nil || p.Name < first.Name) {
			first = p
		}
	}
	return first
}

// yieldPause is the time after which to look again at a profile that has given its GPU to a replica.
const yieldPause = 5 * time.Second

// yield ends the server of a profile for as long as a replica of the profile's function has no GPU: requests come before measurements. The trial in
// progress begins again later, without counting as a failed attempt.
func (s *state) yield(status *api.GPUProfileStatus, replica *v1.Pod) decision {
	status.Attempt, status.Target, status.Current = nil, nil, "" // the next decisions remove its pods
	s.set(status, metav1.ConditionFalse, api.ReasonGPUInUse, fmt.Sprintf(
		"a replica of the function waits for a GPU: the profile goes on when that has one and another is free, or the function has no requests; %s %s", replica.Name, api.WaitsFor(replica)))
	made := s.write(status)
	made.after = yieldPause
	return made
}

func isRunning(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.Name == p.Spec.Containers[0].Name && c.State.Running != nil
	})
}

// Times within which a client has to start. A server does not keep its GPU for a client that needs longer than
// clientWait, and after clientLimit the measurements end.
const (
	clientWait  = 2 * time.Minute
	clientLimit = time.Hour
)

// isLate reports whether a client has not started for so long that its server should no longer wait for it.
func isLate(client *v1.Pod, now time.Time) bool {
	return client != nil && client.DeletionTimestamp == nil && client.Status.Phase != v1.PodRunning && !kube.Ended(client) &&
		now.Sub(client.CreationTimestamp.Time) >= clientWait
}

// waitForClient waits until the client runs. After clientWait the server is removed and gives back its GPU: the ConfigMap with the request body may be
// missing, which only the kubelet knows, because the controller must not read users' ConfigMaps. Once the client runs, it finds no server, and the trial
// begins again.
func (s *state) waitForClient(status *api.GPUProfileStatus, target, client *v1.Pod) decision {
	why := cmp.Or(api.Failure(client), api.WaitsFor(client))
	if b := s.plan.body; b != nil && client.Spec.NodeName != "" { // a pod's status says nothing about its volumes
		why += fmt.Sprintf(", which mounts the key %s of ConfigMap %s: if that is not there, create it", b.Key, b.ConfigMap)
	}
	if left := client.CreationTimestamp.Add(clientLimit).Sub(s.now); left <= 0 {
		return s.halt(status, "the client has not started within "+clientLimit.String()+": "+why)
	}
	reason, next := api.ReasonStarting, clientWait
	if isLate(client, s.now) {
		reason, next = api.ReasonClientWaits, clientLimit
		why += "; the GPU is given back until then"
	}
	s.set(status, metav1.ConditionFalse, reason, "client: "+why)
	made := s.write(status)
	if made.status == nil && reason == api.ReasonClientWaits && target != nil && target.DeletionTimestamp == nil {
		made.remove = target
	}
	made.after = client.CreationTimestamp.Add(next).Sub(s.now)
	return made
}
