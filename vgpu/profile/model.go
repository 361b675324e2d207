package profile

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Model holds the latency models of one neural network by execution mode. Modes that were not measured are nil.
type Model struct {
	Name        string       `json:"name"`
	CPU         *CPU         `json:"cpu,omitempty"`
	GPU         *GPU         `json:"gpu,omitempty"`
	Partitioned *Partitioned `json:"partitioned,omitempty"`
	Share       *Share       `json:"share,omitempty"`
}

// Validate returns a *share.FieldError if there is no latency model or one is invalid, or nil.
func (m *Model) Validate() error {
	switch {
	case m.Name == "":
		return share.Invalid("name", "is empty")
	case m.CPU == nil && m.GPU == nil && m.Partitioned == nil && m.Share == nil:
		return share.Invalid("cpu, gpu, partitioned, share", "the profile of %.64q has none of them", m.Name)
	}
	return cmp.Or(validPart("cpu", m.CPU), validPart("gpu", m.GPU), validPart("partitioned", m.Partitioned), validPart("share", m.Share))
}

func validPart[P interface {
	Validate() error
	comparable
}](name string, part P) error {
	var none P
	if part == none {
		return nil
	}
	return within(name, part.Validate())
}
