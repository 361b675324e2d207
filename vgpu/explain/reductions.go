package explain

import (
	"slices"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// reductions returns, for each quantity of container c, the requests in which it is lower. The quantities are always in the same order; one
// that cannot be lowered has an empty list.
func (q *Search) reductions(r share.Request, c int) []variants {
	return []variants{
		q.memoryReductions(r, c), smReductions(r, c), quotaReductions(r, c), limitReductions(r, c, smLimit), limitReductions(r, c, quotaLimit),
		limitReducedTo(r, c, smLimit, r.Containers[c].Share.SMRequest), limitReducedTo(r, c, quotaLimit, r.Containers[c].Share.QuotaRequest),
		vgpuReductions(r, c),
	}
}

const percent share.PerMille = 10 // users write whole percentages

// memoryReductions returns the requests with less memory, one for each amount that a slice has left. Amounts in between need not be tried,
// as they fit no more slices than the next larger amount in the list.
func (q *Search) memoryReductions(r share.Request, c int) (a variants) {
	now := r.Containers[c].Share.Memory
	for _, left := range q.memoryLeft(now) {
		changed := cloneRequest(r)
		changed.Containers[c].Share.Memory = left
		a = append(a, newVariant(changed, c, share.FieldMemory, int64(now/share.MiB), int64(left/share.MiB)))
	}
	return a
}

func (q *Search) memoryLeft(below share.Bytes) (list []share.Bytes) {
	for _, n := range q.Nodes {
		for i := range n.Slices {
			left := n.Slices[i].Memory - n.Loads[i].Memory() - n.Loads[i].MissingWeights(q.Pod.Tenant, q.Pod.Request.Weights)
			if q.Pod.Request.Isolation == share.Swap {
				left = n.Slices[i].TurnMemory(&n.Loads[i])
			}
			left = left / share.MiB * share.MiB
			if left > 0 && left < below {
				list = append(list, left)
			}
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return slices.Compact(list)
}

// limitFollows reports whether a container's limit is lowered with its request: they are equal, and no other container needs the pod's annotation
// of the limit, as its limit is above its request.
func limitFollows(r share.Request, c int, of limitAccessor) bool {
	for i := range r.Containers {
		if limit, _, request := of(&r.Containers[i].Share); i == c && *limit != request || i != c && *limit > request {
			return false
		}
	}
	return true
}

// smReductions returns the requests with fewer SMs. If the SM limit follows the request, it is lowered with it.
func smReductions(r share.Request, c int) (a variants) {
	now := r.Containers[c].Share
	for sm := now.SMRequest - percent; sm >= percent; sm -= percent {
		changed := cloneRequest(r)
		sh := &changed.Containers[c].Share
		sh.SMRequest = sm
		if limitFollows(r, c, smLimit) {
			sh.SMLimit = sm
		}
		a = append(a, newVariant(changed, c, share.FieldSM, int64(now.SMRequest/percent), int64(sm/percent)))
	}
	return a
}

// quotaReductions returns the requests with less quota. If the quota limit follows the request, it is lowered with it.
func quotaReductions(r share.Request, c int) (a variants) {
	now := r.Containers[c].Share
	if r.Containers[c].VGPUs > 1 { // several vGPUs need all of the time
		return nil
	}
	for q := now.QuotaRequest - percent; q >= percent; q -= percent {
		changed := cloneRequest(r)
		sh := &changed.Containers[c].Share
		sh.QuotaRequest = q
		if limitFollows(r, c, quotaLimit) {
			sh.QuotaLimit = q
		}
		a = append(a, newVariant(changed, c, share.FieldQuota, int64(now.QuotaRequest/percent), int64(q/percent)))
	}
	return a
}

// limitAccessor returns a pointer to one of a share's two limits, the name of its field, and the request that the limit may not fall below.
type limitAccessor func(*share.Share) (limit *share.PerMille, field string, request share.PerMille)

func smLimit(s *share.Share) (*share.PerMille, string, share.PerMille) {
	return &s.SMLimit, share.FieldSMLimit, s.SMRequest
}

func quotaLimit(s *share.Share) (*share.PerMille, string, share.PerMille) {
	return &s.QuotaLimit, share.FieldQuotaLimit, s.QuotaRequest
}

// limitReductions returns the requests with a lower limit that is still above its request. Lowering the limit to its request is left to
// limitReducedTo, since it may also allow another isolation class.
func limitReductions(r share.Request, c int, of limitAccessor) (a variants) {
	now, _, request := of(&r.Containers[c].Share)
	for l := *now - percent; l > request; l -= percent {
		a = append(a, limitReducedTo(r, c, of, l)...)
	}
	return a
}

// limitReducedTo returns the request with the limit lowered to l, or nothing if the limit is at most l already. Limits are annotations of
// the pod, so the limits of all its containers are lowered, but none below its own request.
func limitReducedTo(r share.Request, c int, of limitAccessor, l share.PerMille) variants {
	now, field, _ := of(&r.Containers[c].Share)
	if *now <= l {
		return nil
	}
	changed := cloneRequest(r)
	for i := range changed.Containers {
		other, _, least := of(&changed.Containers[i].Share)
		*other = max(least, min(*other, l))
	}
	s := newVariant(changed, c, field, int64(*now/percent), int64(l/percent))
	s.edits[0].Container = ""
	return variants{s}
}

// vgpuReductions returns the requests with fewer vGPUs of the same share each, so the container's totals of SMs and memory fall with them.
func vgpuReductions(r share.Request, c int) (a variants) {
	now := r.Containers[c].VGPUs
	sm, mem := int64(r.Containers[c].Share.SMRequest/percent), int64(r.Containers[c].Share.Memory/share.MiB)
	for n := now - 1; n >= 1; n-- {
		changed := cloneRequest(r)
		changed.Containers[c].VGPUs = n
		s := newVariant(changed, c, share.FieldVGPU, int64(now), int64(n))
		s.edits = append(s.edits, newEdit(s.edits[0].Container, share.FieldSM, sm*int64(now), sm*int64(n)),
			newEdit(s.edits[0].Container, share.FieldMemory, mem*int64(now), mem*int64(n)))
		a = append(a, s)
	}
	return a
}

// newVariant returns a changed request with the edit of one field that produces it. Resources of a pod are totals of a container, so SMs
// and memory of one vGPU are multiplied by the number of vGPUs.
func newVariant(changed share.Request, c int, field string, from, to int64) variant {
	container, all := &changed.Containers[c], int64(1)
	if field == share.FieldMemory || field == share.FieldSM {
		all = int64(container.VGPUs)
	}
	return variant{changed, []Edit{newEdit(container.Name, field, from*all, to*all)}, (from - to) * 1000 / from}
}

func newEdit(container, field string, from, to int64) Edit {
	return Edit{container, field, strconv.FormatInt(from, 10), strconv.FormatInt(to, 10)}
}
