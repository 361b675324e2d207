package standalone

import (
	"errors"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const maxName = 63

// requestOf converts the request of a user of gshare run, and validates it by the rules for pods.
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

// refusalOf converts an error to the refusal that the user gets: itself if it is one, else with the field of the request at fault if the error names
// one, else a failure of the machine.
func refusalOf(err error) *control.Refusal {
	if refusal, ok := errors.AsType[*control.Refusal](err); ok {
		return refusal
	}
	if field, ok := errors.AsType[*share.FieldError](err); ok {
		return &control.Refusal{Kind: control.Invalid, Field: field.Field, Reason: field.Reason}
	}
	return &control.Refusal{Kind: control.Failed, Reason: err.Error()}
}

// podOf returns a request as a pod for the packer. Its tenant is the user ID.
func podOf(uid uint32, r share.Request) *packing.Pod {
	return &packing.Pod{Tenant: strconv.FormatUint(uint64(uid), 10), Request: r}
}
