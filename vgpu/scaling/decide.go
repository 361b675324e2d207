package scaling

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Action is what a decision does to an instance.
type Action string

// Create and Delete are the "+" and "-" of Alg. 1 (FG-97); Promote and Demote change the residency of an instance.
const (
	Create  Action = "create"
	Promote Action = "promote"
	Demote  Action = "demote"
	Delete  Action = "delete"
)

// Rule is why a decision was taken.
type Rule string

const (
	FromZero  Rule = "load without an instance"
	Overflow  Rule = "load above the hot instances"
	ScaleOut  Rule = "window above the throughput"
	ScaleIn   Rule = "window below the throughput of one less"
	Displaced Rule = "one shared instance at a time"
	Unneeded  Rule = "without need for long"
	Bounds    Rule = "fewer instances than the minimum"
)

// Decision is one step, for its instance as it is afterwards.
type Decision struct {
	Action   Action
	Rule     Rule
	Instance Instance
}

// Scaler decides for one function.
type Scaler struct {
	policy  Policy
	choices []Configuration
}

// New makes a Scaler that adds instances of choices: those of the function's configurations that keep its SLO (F5). The
// errors are *share.FieldError; without choices, ErrUnservable too.
func New(policy Policy, choices []Configuration) (*Scaler, error) {
	policy = policy.withDefaults()
	if err := policy.validate(); err != nil {
		return nil, err
	}
	if err := validateAll(choices); err != nil {
		return nil, err
	}
	return &Scaler{policy: policy, choices: slices.Clone(choices)}, nil
}

// Decide takes the load that was measured at now, once a period, and says what to do. The state is not changed; the one
// returned takes the decisions as carried out. now counts from any fixed time and never falls. The errors are
// *share.FieldError.
func (s *Scaler) Decide(now time.Duration, load Rate, state State) ([]Decision, State, error) {
	if err := state.validate(now); err != nil {
		return nil, state, err
	}
	if err := checkLoad(load); err != nil {
		return nil, state, err
	}
	unchanged := state
	state.Instances = slices.Clone(state.Instances)
	step := step{policy: &s.policy, choices: s.choices, now: now, load: load, state: &state}
	for _, rule := range []func() error{step.promote, step.reachMinimum, step.sample, step.scaleOut, step.scaleIn, step.age} {
		if err := rule(); err != nil {
			return nil, unchanged, err
		}
	}
	return step.decisions, state, nil
}

// maxLoad is far above any load, and keeps sums of rates from overflowing.
const maxLoad Rate = 1e12

func checkLoad(load Rate) error {
	if !(load >= 0 && load <= maxLoad) {
		return share.Invalid("load", "%v requests/s is outside 0 to %v", float64(load), float64(maxLoad))
	}
	return nil
}
