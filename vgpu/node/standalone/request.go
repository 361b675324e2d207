package standalone

import (
	"errors"
	"fmt"
	"sort"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const maxName = 63

// requestOf converts and validates a user's request by the rules for pods.
func requestOf(r control.RunRequest) (share.Request, error) {
	if len(r.Name) > maxName {
		return share.Request{}, share.Invalid("name", "%d bytes are more than %d", len(r.Name), maxName)
	}
	terms, err := share.NewTerms(share.RawTerms{Class: r.Class, Isolation: r.Isolation, Slice: r.Slice})
	if err != nil {
		return share.Request{}, err
	}
	raw := share.RawContainer{SM: r.SM, Quota: r.Quota, Memory: r.MemoryMiB, VGPUs: r.VGPUs}
	if raw.VGPUs == nil && raw.SM != nil {
		raw.VGPUs = new(max(1, (*raw.SM+99)/100)) // as the admission policy of a cluster does
	}
	container, err := share.NewContainer("run", raw, share.Limits{SM: r.SMLimit, Quota: r.QuotaLimit})
	if err != nil {
		return share.Request{}, err
	}
	request := share.Request{Terms: terms, Containers: []share.Container{container}}
	return request, request.Validate()
}

// refusalOf returns the answer to a request that failed with err.
func refusalOf(err error) *control.Refusal {
	var field *share.FieldError
	if errors.As(err, &field) {
		return &control.Refusal{Field: field.Field, Reason: field.Reason}
	}
	return &control.Refusal{Reason: err.Error()}
}

// podOf returns a request as a pod whose tenant is the user.
func podOf(uid uint32, r share.Request) *packing.Pod {
	return &packing.Pod{Tenant: strconv.FormatUint(uint64(uid), 10), Request: r}
}

// findDevices returns devices for a request, or why none has enough left, with smaller requests that would fit.
func (n *Node) findDevices(node *packing.Node, pod *packing.Pod) ([]packing.Pick, *control.Refusal) {
	if err := pod.Request.ValidateDevices(); err != nil {
		refusal := refusalOf(err)
		refusal.Fits = []string{fmt.Sprintf("--sm %d --isolation exclusive", 100*pod.Request.Containers[0].VGPUs)}
		return nil, refusal
	}
	plan, _, refusal := n.packer.Place(node, pod)
	if refusal != packing.Admitted {
		return nil, &control.Refusal{Field: fieldOf[refusal], Reason: n.explain(refusal), Fits: n.suggestions(node, pod)}
	}
	return plan[0], nil
}

// fieldOf maps refusals to the field of the request that causes them, if there is one.
var fieldOf = map[packing.Refusal]string{
	packing.NotEnforceable: share.FieldIsolation, packing.OtherClass: share.FieldIsolation,
	packing.TooFewDevices: share.FieldVGPU, packing.NoMemory: share.FieldMemory, packing.OverLimits: share.FieldQuotaLimit,
}

// explain returns the text of a refusal, with the reason why MPS is not available if that caused it.
func (n *Node) explain(r packing.Refusal) string {
	if err := n.MPS.Available(); r == packing.NotEnforceable && err != nil {
		return fmt.Sprintf("%v: %v, so a device cannot be shared", r, err)
	}
	return r.String()
}

// suggestions returns, as flags of gshare run, the largest SMs, quota and memory with which the request would fit now if only that one
// were smaller.
func (n *Node) suggestions(node *packing.Node, pod *packing.Pod) (list []string) {
	c := pod.Request.Containers[0]
	try := func(flag string, now, vgpus int64, set func(s *share.Share, v int64)) {
		most := sort.Search(int(now), func(i int) bool { // what fits also fits if it is smaller
			smaller := c
			set(&smaller.Share, int64(i)+1)
			return !n.admits(node, pod, smaller)
		})
		if most > 0 {
			list = append(list, fmt.Sprintf(flag, int64(most)*vgpus))
		}
	}
	all := int64(c.VGPUs)
	try("--sm %d", int64(c.Share.SMRequest/10), all, func(s *share.Share, v int64) {
		s.SMRequest, s.SMLimit = share.PerMille(v*10), share.PerMille(v*10)
	})
	try("--quota %d", int64(c.Share.QuotaRequest/10), 1, func(s *share.Share, v int64) {
		s.QuotaRequest, s.QuotaLimit = share.PerMille(v*10), share.PerMille(v*10)
	})
	try("--mem %dMi", int64(c.Share.Memory/share.MiB), all, func(s *share.Share, v int64) {
		s.Memory = share.Bytes(v) * share.MiB
	})
	return list
}

// admits reports whether the pod would fit with another container in place of its own.
func (n *Node) admits(node *packing.Node, pod *packing.Pod, c share.Container) bool {
	try := *pod
	try.Request.Containers = []share.Container{c}
	if try.Request.Validate() != nil || try.Request.ValidateDevices() != nil {
		return false
	}
	_, _, refusal := n.packer.Place(node, &try)
	return refusal == packing.Admitted
}
