package v1alpha1

import (
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// External reports whether another autoscaler scales the function.
func (f *GPUFunction) External() bool { return f.Spec.Scaling.Autoscaler == External }

// Unprofiled reports whether the share of the function, or the rate that one replica can serve, is unknown. The function then has one replica. The
// share of an External function is known to others.
func (f *GPUFunction) Unprofiled() bool {
	f = f.withProfile()
	return f.Spec.Resources.Share == nil && f.Spec.Pipeline == nil && !f.External() || f.Spec.Scaling.RequestsPerSecond == 0
}

// Profile returns the name of the GPUProfile whose recommendation the function uses, or an empty string if it uses none.
func (f *GPUFunction) Profile() string {
	switch {
	case f.Spec.ProfileRef != nil:
		return f.Spec.ProfileRef.Name
	case f.SaysOnlyObjective():
		return f.Name
	}
	return ""
}

// SaysOnlyObjective reports whether the function leaves it to gshare what a replica needs and can serve, and gshare can find out: either the function
// says what to send, or it uses protocol OIP, for which gshare knows what to send. What gshare would send to other servers by itself need not
// resemble the requests of their users, and a share that suffices for / may not suffice for those. A function that sets the share or the rate uses
// what it sets.
func (f *GPUFunction) SaysOnlyObjective() bool {
	return f.Spec.ProfileRef == nil && !f.External() && (f.Spec.Protocol == OIP || f.Spec.Request != nil) && f.Spec.Resources.Share == nil && f.Spec.Scaling.RequestsPerSecond == 0
}

// withProfile returns the function with what its profile recommends: a copy, or the function itself if there is no recommendation.
func (f *GPUFunction) withProfile() *GPUFunction {
	r := f.Status.Profiled
	if f.Profile() == "" || r == nil || f.External() {
		return f
	}
	f = f.DeepCopy()
	if f.Spec.Resources.Share == nil {
		f.Spec.Resources.Share = &Share{SM: new(r.SM), SMLimit: f.profiledLimit(), Quota: new(r.Quota), Memory: r.Memory}
	}
	setDefault(&f.Spec.Scaling.RequestsPerSecond, r.RequestsPerSecond)
	if f.Spec.Protocol == OIP {
		f.Spec.Batching.MaxBatch = r.MaxBatch
	}
	return f
}

// profiledLimit returns the percentage of SMs that a replica may use while others leave them idle, as its profile has measured, or nil for no more
// than its share. It is at most one and a half times the share: the sum of the limits on a GPU is at most 150 % by default, so that a GPU has room
// for as many replicas as without limits, and load on the measuring machine makes the measured limit high. Annotations of the template take
// precedence. With shares of different sizes, there is no measured limit.
func (f *GPUFunction) profiledLimit() *int64 {
	r, a := f.Status.Profiled, f.Spec.Template.Annotations
	if r.SMLimit <= r.SM || r.SMLimit > 100 || r.Quota != 100 || f.Spec.Scaling.Shares == MixedShares || a[share.FieldIsolation] != "" || a[share.FieldSMLimit] != "" {
		return nil
	}
	return new(min(r.SMLimit, r.SM*3/2))
}

// Variants returns the function with each of the shares that its replicas may have: itself and, if the shares are Mixed, copies with the smaller
// shares that its profile has measured besides the recommended one. None of them serves more for its SM-time than the function itself, whatever rate
// its spec says, because as many replicas with the function's own share as the load keeps busy are to run. The function must be complete. Nothing
// that is returned may be changed.
func (f *GPUFunction) Variants() []*GPUFunction {
	all := []*GPUFunction{f}
	if f.Spec.Scaling.Shares != MixedShares || f.Spec.ProfileRef == nil || f.Status.Profiled == nil || f.External() {
		return all
	}
	whole := f.Share().RequestArea()
	for _, s := range f.Status.Profiled.Smaller {
		if s.SM < 1 || s.Quota < 1 { // unlike the spec, the status is not checked
			continue
		}
		v := *f
		v.Spec.Resources.Share = &Share{SM: new(s.SM), Quota: new(s.Quota), Memory: f.Spec.Resources.Share.Memory}
		area := v.Share().RequestArea()
		v.Spec.Scaling.RequestsPerSecond = min(s.RequestsPerSecond, lessEfficient*f.Spec.Scaling.RequestsPerSecond*float64(area)/float64(whole))
		if area < whole && v.Spec.Scaling.RequestsPerSecond >= minRate {
			all = append(all, &v)
		}
	}
	return all
}

// lessEfficient bounds what a smaller share serves for its SM-time, as a fraction of what the function's own share does. If both served as much, the
// smaller one would be chosen for any load.
const lessEfficient = 0.99

// CompleteForCluster returns a copy of an object of a cluster, with every field set that the methods of a GPUFunction, and the code that runs it,
// rely on. A function with a profile gets what its status says that the profile recommends. A function without a share gets a whole GPU with the
// given memory. An Unprofiled function gets as many replicas as its minimum, and at least one. An External function gets a share that no pod has,
// because its replicas are all alike to the rules. The API server has checked the object against its CustomResourceDefinition; the error,
// *share.FieldError joined, is for what an object of an older definition, or a cluster without a GPU, leaves wrong.
func (f *GPUFunction) CompleteForCluster(memory share.Bytes) (*GPUFunction, error) {
	f = f.withProfile().DeepCopy()
	f.APIVersion, f.Kind = APIVersion, Kind // clients leave them out
	if f.Spec.Pipeline != nil && !f.External() {
		f.Spec.Pipeline.setShare(&f.Spec.Resources)
	}
	unprofiled := f.Unprofiled()
	s := &f.Spec.Scaling
	if unprofiled {
		s.MaxReplicas = new(max(1, s.MinReplicas))
		setDefault(&s.RequestsPerSecond, 1) // the value does not matter with so few replicas
	}
	whole := int64(100)
	switch {
	case f.External():
		f.Spec.Resources.Share = &Share{SM: &whole, Memory: "1Mi"}
	case f.Spec.Resources.Share == nil:
		if memory < share.MiB {
			return nil, share.Invalid("spec.resources.share", "is not set, and there is no node with a GPU, whose memory would be that of a replica")
		}
		f.Spec.Resources.Share = &Share{SM: &whole, Memory: Quantity(fmt.Sprintf("%dMi", memory/share.MiB))}
	}
	f.setDefaults()
	var template error
	if !f.External() {
		template = errors.Join(validateContainers("spec.template.spec", &f.Spec.Template.Spec), validateGrace("spec.template.spec", &f.Spec.Template.Spec))
	}
	return f, errors.Join(
		checkName("metadata.name", f.Name),
		f.Spec.validateSLO("spec.slo"),
		f.Spec.validateProtocol("spec"),
		template,
		f.Spec.validatePipeline("spec"),
		f.Spec.Resources.Share.validate("spec.resources.share"),
		s.validate("spec.scaling"),
		f.validateGPUs(),
		f.Spec.Access.validate("spec.access"),
	)
}
