package explain

import (
	"slices"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// axes returns the quantities of a container that could be smaller, always in the same order; one that cannot is empty.
func (q *Question) axes(r share.Request, c int) []axis {
	return []axis{
		q.memory(r, c), sms(r, c), quota(r, c), limits(r, c, smLimit), limits(r, c, quotaLimit),
		limitTo(r, c, smLimit, r.Containers[c].Share.SMRequest), limitTo(r, c, quotaLimit, r.Containers[c].Share.QuotaRequest),
		vgpus(r, c),
	}
}

const percent share.PerMille = 10 // users write whole percents

// memory returns what slices have left, since nothing between two of these values fits more.
func (q *Question) memory(r share.Request, c int) (a axis) {
	now := r.Containers[c].Share.Memory
	for _, left := range q.memoryLeft(now) {
		changed := clone(r)
		changed.Containers[c].Share.Memory = left
		a = append(a, stepTo(changed, c, share.FieldMemory, int64(now/share.MiB), int64(left/share.MiB)))
	}
	return a
}

func (q *Question) memoryLeft(below share.Bytes) (list []share.Bytes) {
	for _, n := range q.Nodes {
		for i := range n.Slices {
			left := (n.Slices[i].Memory - n.Loads[i].Memory()) / share.MiB * share.MiB
			if left > 0 && left < below {
				list = append(list, left)
			}
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return slices.Compact(list)
}

// sms lowers the SMs, and a limit that equals them.
func sms(r share.Request, c int) (a axis) {
	now := r.Containers[c].Share
	for sm := now.SMRequest - percent; sm >= percent; sm -= percent {
		changed := clone(r)
		sh := &changed.Containers[c].Share
		sh.SMRequest = sm
		if now.SMLimit == now.SMRequest {
			sh.SMLimit = sm
		}
		a = append(a, stepTo(changed, c, share.FieldSM, int64(now.SMRequest/percent), int64(sm/percent)))
	}
	return a
}

// quota lowers the part of the time, and a limit that equals it.
func quota(r share.Request, c int) (a axis) {
	now := r.Containers[c].Share
	if r.Containers[c].VGPUs > 1 { // needs all of the time
		return nil
	}
	for q := now.QuotaRequest - percent; q >= percent; q -= percent {
		changed := clone(r)
		sh := &changed.Containers[c].Share
		sh.QuotaRequest = q
		if now.QuotaLimit == now.QuotaRequest {
			sh.QuotaLimit = q
		}
		a = append(a, stepTo(changed, c, share.FieldQuota, int64(now.QuotaRequest/percent), int64(q/percent)))
	}
	return a
}

// ceiling reads a limit, its field and the request that it may not fall below.
type ceiling func(*share.Share) (limit *share.PerMille, field string, request share.PerMille)

func smLimit(s *share.Share) (*share.PerMille, string, share.PerMille) {
	return &s.SMLimit, share.FieldSMLimit, s.SMRequest
}

func quotaLimit(s *share.Share) (*share.PerMille, string, share.PerMille) {
	return &s.QuotaLimit, share.FieldQuotaLimit, s.QuotaRequest
}

// limits lowers a limit, but not down to its request: then the share would be of another class, which is a step apart.
func limits(r share.Request, c int, of ceiling) (a axis) {
	now, _, request := of(&r.Containers[c].Share)
	for l := *now - percent; l > request; l -= percent {
		a = append(a, limitTo(r, c, of, l)...)
	}
	return a
}

// limitTo lowers a limit, if it is higher. Limits are annotations of the pod, so those of all containers fall.
func limitTo(r share.Request, c int, of ceiling, l share.PerMille) axis {
	now, field, _ := of(&r.Containers[c].Share)
	if *now <= l {
		return nil
	}
	changed := clone(r)
	for i := range changed.Containers {
		other, _, least := of(&changed.Containers[i].Share)
		*other = max(least, min(*other, l))
	}
	s := stepTo(changed, c, field, int64(*now/percent), int64(l/percent))
	s.edits[0].Container = ""
	return axis{s}
}

// vgpus takes fewer of them, each with the same share, so that the totals fall too.
func vgpus(r share.Request, c int) (a axis) {
	now := r.Containers[c].VGPUs
	sm, mem := int64(r.Containers[c].Share.SMRequest/percent), int64(r.Containers[c].Share.Memory/share.MiB)
	for n := now - 1; n >= 1; n-- {
		changed := clone(r)
		changed.Containers[c].VGPUs = n
		s := stepTo(changed, c, share.FieldVGPU, int64(now), int64(n))
		s.edits = append(s.edits, edit(s.edits[0].Container, share.FieldSM, sm*int64(now), sm*int64(n)),
			edit(s.edits[0].Container, share.FieldMemory, mem*int64(now), mem*int64(n)))
		a = append(a, s)
	}
	return a
}

// stepTo writes a change down. Resources are totals of the container, so what is of one vGPU counts for all.
func stepTo(changed share.Request, c int, field string, from, to int64) step {
	container, all := &changed.Containers[c], int64(1)
	if field == share.FieldMemory || field == share.FieldSM {
		all = int64(container.VGPUs)
	}
	return step{changed, []Edit{edit(container.Name, field, from*all, to*all)}, (from - to) * 1000 / from}
}

func edit(container, field string, from, to int64) Edit {
	return Edit{container, field, strconv.FormatInt(from, 10), strconv.FormatInt(to, 10)}
}
