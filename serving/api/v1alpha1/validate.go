package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func (f *GPUFunction) setDefaults() {
	setDefault(&f.Namespace, "default")
	setDefault(&f.Spec.Protocol, HTTP)
	setDefault(&f.Spec.Batching.MaxBatch, 1)
	pod := &f.Spec.Template.Spec
	setPointer(&pod.TerminationGracePeriodSeconds, 30)
	for i := range pod.Containers {
		setDefault(&pod.Containers[i].Name, "server")
		if p := pod.Containers[i].StartupProbe; p != nil {
			setDefault(&p.PeriodSeconds, 10)
			setDefault(&p.FailureThreshold, 3)
			setDefault(&p.TimeoutSeconds, 1)
		}
	}
	s := &f.Spec.Scaling
	setDefault(&s.Autoscaler, Native)
	setDefault(&s.Shares, SingleShare)
	setPointer(&s.MaxReplicas, max(10, s.MinReplicas))
	setPointer(&s.Concurrency, 1)
	setDefault(&s.Window, "10s")
	setDefault(&s.KeepShared, "2m")
	if f.Spec.Resources.Share != nil {
		setPointer(&f.Spec.Resources.Share.Quota, 100)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Bounds of the fields.
const (
	maxName     = 50 // leaves room for the number of a replica in the name of a run
	maxReplicas = 1000
	minRate     = 0.001
	maxRate     = 1e6
	maxGrace    = time.Hour
	maxBatch    = 4096
	maxStartup  = 24 * time.Hour
)

// validate returns an error that names every field that is not valid: *share.FieldError, joined.
func (f *GPUFunction) validate() error {
	if f.APIVersion != APIVersion || f.Kind != Kind {
		return fmt.Errorf("is %.64q of %.64q, want %s of %s", f.Kind, f.APIVersion, Kind, APIVersion)
	}
	return errors.Join(
		checkName("metadata.name", f.Name), checkName("metadata.namespace", f.Namespace),
		f.Spec.validateSLO("spec.slo"),
		f.Spec.validateProtocol("spec"),
		f.Spec.validateModel("spec.model.aliases"),
		validatePod("spec.template.spec", &f.Spec.Template.Spec),
		f.Spec.Resources.Share.validate("spec.resources.share"),
		f.Spec.Scaling.validate("spec.scaling"),
		f.Spec.Scaling.validateOnMachine("spec.scaling"),
		f.Spec.validateProfile("spec"),
		f.Spec.Access.validate("spec.access"),
	)
}

func checkName(field, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 || len(name) > maxName {
		return share.Invalid(field, "%.64q is not 1 to %d lower-case letters, digits and '-', with a letter or digit at both ends", name, maxName)
	}
	return nil
}

// checkDuration returns an error unless the duration is within the bounds. The unit is the one to suggest for a number without a unit.
func checkDuration(field string, d Duration, low, high time.Duration, unit string) error {
	v := d.Value()
	if v >= low && v <= high {
		return nil
	}
	if x, err := strconv.ParseFloat(string(d), 64); err == nil && x > 0 {
		return share.Invalid(field, "%.64s has no unit, such as %.64[1]s%s", string(d), unit)
	}
	return share.Invalid(field, "%.64q is no duration of %v to %v, such as 69ms", string(d), low, high)
}

func (s *GPUFunctionSpec) validateSLO(field string) error {
	err := checkDuration(field+".latency", s.SLO.Latency, time.Millisecond, time.Hour, "ms")
	switch {
	case s.SLO.TimePerToken == "":
		return err
	case s.Protocol != OpenAI:
		return errors.Join(err, share.Invalid(field+".timePerToken", "want protocol OpenAI, whose answers have tokens, not %.64q", string(s.Protocol)))
	}
	return errors.Join(err, checkDuration(field+".timePerToken", s.SLO.TimePerToken, time.Millisecond, time.Hour, "ms"))
}

func (s *GPUFunctionSpec) validateProtocol(field string) error {
	most := 1
	switch s.Protocol {
	case OIP:
		most = maxBatch
	case HTTP, OpenAI:
	default:
		return share.Invalid(field+".protocol", "%.64q is none of HTTP, OIP, OpenAI", string(s.Protocol))
	}
	if s.Batching.MaxBatch < 1 || s.Batching.MaxBatch > most {
		return share.Invalid(field+".batching.maxBatch", "%d is outside 1 to %d, the bound for protocol %s", s.Batching.MaxBatch, most, s.Protocol)
	}
	return nil
}

const (
	maxAliases = 64
	maxAlias   = 253
)

var aliasForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.:/@+]*[A-Za-z0-9])?$`)

// validateModel returns an error for aliases that no request could name.
func (s *GPUFunctionSpec) validateModel(field string) error {
	aliases := s.Model.Aliases
	switch {
	case len(aliases) > 0 && s.Protocol != OpenAI:
		return share.Invalid(field, "want protocol OpenAI, whose requests name a model, not %.64q", string(s.Protocol))
	case len(aliases) > maxAliases:
		return share.Invalid(field, "has %d names, more than %d", len(aliases), maxAliases)
	}
	for i, name := range aliases {
		if len(name) > maxAlias || !aliasForm.MatchString(name) {
			return share.Invalid(field, "%.64q is not 1 to %d letters, digits and any of -_.:/@+ between them", name, maxAlias)
		}
		if slices.Contains(aliases[:i], name) {
			return share.Invalid(field, "%.64q is there twice", name)
		}
	}
	return nil
}

// validateProfile returns an error for what a single machine does not have: profiles, and an agent that parks.
func (s *GPUFunctionSpec) validateProfile(field string) error {
	if s.ProfileRef != nil {
		return share.Invalid(field+".profileRef", "only a cluster has profiles; measure with gshare profile")
	}
	if s.Request != nil && s.Request.BodyFrom != nil {
		return share.Invalid(field+".request.bodyFrom", "only a cluster has ConfigMaps; write body, or leave the request out, and give it to gshare profile as --data @FILE")
	}
	if s.Pipeline != nil {
		return share.Invalid(field+".pipeline", "only a cluster has MIG instances to cut a function for")
	}
	if s.Scaling.KeepWarm != "" {
		return share.Invalid(field+".scaling.keepWarm", "only in a cluster replicas can be parked")
	}
	return nil
}

// validateKeepWarm returns an error for an invalid time to park replicas. Without one, replicas are not parked.
func (s *Scaling) validateKeepWarm(field string) error {
	if s.KeepWarm == "" {
		return nil
	}
	return checkDuration(field, s.KeepWarm, time.Second, 168*time.Hour, "m")
}

func validatePod(field string, s *v1.PodSpec) error {
	if err := validateContainers(field, s); err != nil {
		return err
	}
	return errors.Join(validateGrace(field, s), validateContainer(field+".containers[0]", &s.Containers[0]))
}

func validateContainers(field string, s *v1.PodSpec) error {
	if len(s.Containers) != 1 {
		return share.Invalid(field+".containers", "there are %d, want 1", len(s.Containers))
	}
	return nil
}

func validateGrace(field string, s *v1.PodSpec) error {
	if grace := *s.TerminationGracePeriodSeconds; grace < 0 || grace > int64(maxGrace/time.Second) {
		return share.Invalid(field+".terminationGracePeriodSeconds", "%d is outside 0 to %d", grace, maxGrace/time.Second)
	}
	return nil
}

// Variables that are set for each replica.
const (
	PortVariable = "PORT" // the port on which the server must listen
	HostVariable = "HOST" // the address on which the server must listen, if not on all addresses
)

func validateContainer(field string, c *v1.Container) error {
	var errs []error
	report := func(name, format string, args ...any) {
		errs = append(errs, share.Invalid(field+name, format, args...))
	}
	if err := checkName(field+".name", c.Name); err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.Image != "":
		report(".image", "leave it out and name the program to start in %s.command: a machine without Kubernetes has no images", field)
	case len(c.Command) == 0 && len(c.Args) > 0:
		report(".args", "are added to a command, and there is none: name the program to start in %s.command, as there is no image that has one", field)
	case len(c.Command) == 0 || c.Command[0] == "":
		report(".command", "is the program to start, and cannot be empty")
	}
	for i, text := range slices.Concat(c.Command, c.Args) {
		if strings.ContainsRune(text, 0) {
			report(".command", "argument %d contains a zero byte", i)
		}
	}
	seen := map[string]bool{PortVariable: true, HostVariable: true}
	for i, v := range c.Env {
		switch {
		case v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.ContainsRune(v.Value, 0):
			report(fmt.Sprintf(".env[%d]", i), "%.64q is no variable: its name is empty or contains '=', or there is a zero byte", v.Name)
		case seen[v.Name]:
			report(fmt.Sprintf(".env[%d].name", i), "%.64q is set already", v.Name)
		}
		seen[v.Name] = true
	}
	if p := c.ReadinessProbe; p != nil {
		errs = append(errs, validateGet(field+".readinessProbe.httpGet", p.HTTPGet))
	}
	if p := c.StartupProbe; p != nil {
		errs = append(errs, validateStart(field+".startupProbe", p))
	}
	return errors.Join(errs...)
}

func validateGet(field string, g *v1.HTTPGetAction) error {
	if !strings.HasPrefix(g.Path, "/") || strings.ContainsFunc(g.Path, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return share.Invalid(field+".path", "%.64q is no path such as /v2/health/ready", g.Path)
	}
	return nil
}

func validateStart(field string, p *v1.Probe) error {
	var errs []error
	if p.HTTPGet != nil {
		errs = append(errs, validateGet(field+".httpGet", p.HTTPGet))
	}
	inBounds := true
	for _, f := range []struct {
		name       string
		value, low int32
	}{{".initialDelaySeconds", p.InitialDelaySeconds, 0}, {".periodSeconds", p.PeriodSeconds, 1}, {".failureThreshold", p.FailureThreshold, 1}, {".timeoutSeconds", p.TimeoutSeconds, 1}} {
		if most := int32(maxStartup / time.Second); f.value < f.low || f.value > most {
			errs, inBounds = append(errs, share.Invalid(field+f.name, "%d is outside %d to %d", f.value, f.low, most)), false
		}
	}
	if inBounds && StartLimit(p) > maxStartup {
		errs = append(errs, share.Invalid(field+".failureThreshold", "%d periods of %d s are more than %v", p.FailureThreshold, p.PeriodSeconds, maxStartup))
	}
	return errors.Join(errs...)
}

const maxAccess = 64

func (a *Access) validate(field string) error {
	field += ".namespaces"
	if len(a.Namespaces) > maxAccess {
		return share.Invalid(field, "has %d names, more than %d", len(a.Namespaces), maxAccess)
	}
	for i, name := range a.Namespaces {
		if name != "*" && len(validation.IsDNS1123Label(name)) > 0 {
			return share.Invalid(field, "%.64q is no name of a namespace, nor '*' for everybody", name)
		}
		if slices.Contains(a.Namespaces[:i], name) {
			return share.Invalid(field, "%.64q is there twice", name)
		}
	}
	return nil
}

// shareFields are the names of the parts of a share in a function.
var shareFields = map[string]string{
	share.FieldSM: ".sm", share.FieldSMLimit: ".smLimit", share.FieldQuota: ".quota", share.FieldQuotaLimit: ".quotaLimit", share.FieldMemory: ".memory",
	share.FieldVGPU: ".gpus",
}

func (s *Share) validate(field string) error {
	_, err := s.share()
	invalid := (*share.FieldError)(nil)
	if errors.As(err, &invalid) {
		return share.Invalid(field+shareFields[invalid.Field], "%s", invalid.Reason)
	}
	return err
}

// share validates the share by the rules of pods and returns it.
func (s *Share) share() (share.Share, error) {
	if s == nil || s.SM == nil {
		return share.Share{}, share.Invalid(share.FieldSM, "is required: percent of a GPU's SMs")
	}
	q, err := s.Memory.Parse()
	if err == nil && q.Sign() > 0 && q.Cmp(*resource.NewQuantity(int64(share.MiB), resource.BinarySI)) < 0 {
		return share.Share{}, share.Invalid(share.FieldMemory, "%.64q is less than 1Mi: add a unit, such as 1525Mi or 4Gi", string(s.Memory))
	}
	if err != nil || q.Cmp(*resource.NewQuantity(int64(share.MiB), resource.BinarySI)) < 0 || q.Cmp(*resource.NewQuantity(int64(share.MaxMemory), resource.BinarySI)) > 0 {
		return share.Share{}, share.Invalid(share.FieldMemory, "%.64q is no quantity of 1Mi to 1Pi, such as 1525Mi", string(s.Memory))
	}
	mib := (q.Value()-1)/int64(share.MiB) + 1
	c, err := share.NewContainer("server", share.RawContainer{SM: s.SM, Quota: s.Quota, Memory: &mib, VGPUs: new(int64(1))}, share.Limits{SM: s.SMLimit, Quota: s.QuotaLimit})
	switch {
	case err != nil:
	case c.Share.SMLimit > c.Share.SMRequest && c.Share.QuotaRequest != share.Whole:
		err = share.Invalid(share.FieldSMLimit, "above sm, it needs quota 100")
	case s.GPUs < 0 || s.GPUs > share.MaxVGPUs:
		err = share.Invalid(share.FieldVGPU, "%d is outside 1 to %d", s.GPUs, share.MaxVGPUs)
	case s.GPUs*mib > int64(share.MaxMemory/share.MiB):
		err = share.Invalid(share.FieldVGPU, "%d with %.64s each are more than 1Pi in total", s.GPUs, string(s.Memory))
	case s.GPUs > 1 && !c.Share.IsWhole():
		err = share.Invalid(share.FieldVGPU, "with several GPUs, want sm 100 and quota 100: a process can share one GPU only")
	}
	return c.Share, err
}

// validateOnMachine returns an error for what only a cluster has.
func (s *Scaling) validateOnMachine(field string) error {
	var errs []error
	if s.Autoscaler != Native {
		errs = append(errs, share.Invalid(field+".autoscaler", "%.64q: want %s, on one machine there is no other", string(s.Autoscaler), Native))
	}
	if s.Shares != SingleShare {
		errs = append(errs, share.Invalid(field+".shares", "%.64q: want %s, on one machine there is no profile of others", string(s.Shares), SingleShare))
	}
	return errors.Join(errs...)
}

func (s *Scaling) validate(field string) error {
	var errs []error
	check := func(name string, ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, share.Invalid(field+name, format, args...))
		}
	}
	check(".minReplicas", s.MinReplicas >= 0 && s.MinReplicas <= maxReplicas, "%d is outside 0 to %d", s.MinReplicas, maxReplicas)
	check(".maxReplicas", *s.MaxReplicas >= max(1, s.MinReplicas) && *s.MaxReplicas <= maxReplicas, "%d is outside %d to %d", *s.MaxReplicas, max(1, s.MinReplicas), maxReplicas)
	check(".requestsPerSecond", s.RequestsPerSecond >= minRate && s.RequestsPerSecond <= maxRate,
		"%v is outside %v to %v: what one replica answers within the objective", s.RequestsPerSecond, minRate, float64(maxRate))
	check(".concurrency", *s.Concurrency >= 1 && *s.Concurrency <= 10_000, "%d is outside 1 to 10000", *s.Concurrency)
	out, in := s.Votes()
	if n := s.Samples(); n >= 2 { // of a window that is valid
		check(".scaleOutVotes", out >= 1 && out <= n, "%d is outside 1 to %d, the seconds of the window", out, n)
		check(".scaleInVotes", in >= 1 && in < n, "%d is outside 1 to %d, less than the seconds of the window", in, n-1)
	}
	return errors.Join(append(errs, checkDuration(field+".window", s.Window, 2*time.Second, time.Hour, "s"),
		checkDuration(field+".keepShared", s.KeepShared, time.Millisecond, 24*time.Hour, "s"), s.validateKeepWarm(field+".keepWarm"))...)
}

// validateGPUs returns an error for what replicas with several GPUs cannot do.
func (f *GPUFunction) validateGPUs() error {
	if f.GPUs() == 1 {
		return nil
	}
	if f.Spec.Scaling.KeepWarm != "" {
		return share.Invalid("spec.scaling.keepWarm", "want none: replicas with %d GPUs cannot be parked", f.GPUs())
	}
	switch class := f.Spec.Template.Annotations[share.FieldIsolation]; share.Isolation(class) {
	case share.AnyIsolation, share.Exclusive:
		return nil
	default:
		return share.Invalid("spec.template.metadata.annotations", "want no %s: %.64s, as replicas with %d GPUs have them to themselves", share.FieldIsolation, class, f.GPUs())
	}
}
