// Package scaling decides how many instances of a function run, with which configurations, and in which residency.
//
// FaST-GShare's Algorithm 1 chooses the configurations to add and the instances to remove. Dilu's lazy window chooses when, so
// that replicas do not flap: short bursts are left to vertical scaling inside the existing shares. Instances are removed
// gradually, through the states of FluidFaaS: an instance becomes Shared, then Warm, and is deleted last. Until then it is
// promoted again before a new instance is created.
//
// A Scaler is given the load once a second and returns decisions for its caller to carry out. It keeps no state: the State is
// both an argument and a result, so that a restarted controller continues from a stored State, and a simulator gets the same
// decisions as a cluster.
package scaling

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Action is a kind of change that the autoscaler makes to an instance, such as Create or Demote.
type Action string

// Create and Delete are the "+" and "-" of FaST-GShare's Algorithm 1. Promote and Demote change an instance's residency.
const (
	Create  Action = "create"
	Promote Action = "promote"
	Demote  Action = "demote"
	Delete  Action = "delete"
)

// Rule is the reason for an autoscaler's decision, as text for events and logs.
type Rule string

const (
	FromZero  Rule = "load without an instance"
	Overflow  Rule = "load above the hot instances"
	ScaleOut  Rule = "window above the throughput"
	Work      Rule = "requests hold all places"
	Refused   Rule = "requests are refused"
	ScaleIn   Rule = "window below the throughput of one less"
	Displaced Rule = "one shared instance at a time"
	Unneeded  Rule = "without need for long"
	Bounds    Rule = "fewer instances than the minimum"
)

// Decision is one change that the autoscaler makes to one instance. Instance is the instance's state after the change.
type Decision struct {
	Action   Action
	Rule     Rule
	Instance Instance
}

// Scaler is the autoscaler of one function: it decides when to create, promote, demote and delete instances. It is immutable.
type Scaler struct {
	policy  Policy
	choices []Configuration
}

// New returns a Scaler that creates instances with the given configurations, all of which meet the function's SLO. Errors are
// *share.FieldError; without configurations they wrap ErrUnservable too.
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

// Decide returns the changes for the load of the period that ends at time now, and the new state. Call it once per Policy.Period. The new state assumes that the caller
// carries out the decisions. Decide does not modify the given state, but the returned one may share its instances. now counts from any fixed time and never
// decreases. Errors are *share.FieldError.
func (s *Scaler) Decide(now time.Duration, load Load, state State) ([]Decision, State, error) {
	if err := state.validate(now); err != nil {
		return nil, state, err
	}
	if err := checkLoad(load.Rate); err != nil {
		return nil, state, err
	}
	unchanged := state
	step := decider{policy: &s.policy, choices: s.choices, now: now, load: load, state: &state}
	for _, rule := range []func() error{
		step.remember, step.promoteSpare, step.reachMinimum, step.addSample, step.scaleOut, step.followWork, step.spendBudget, step.scaleIn, step.ageIdle,
	} {
		if err := rule(); err != nil {
			return nil, unchanged, err
		}
	}
	return step.decisions, state, nil
}

// IsShort reports whether Policy.Max is all that keeps Decide from creating instances for the load in the window of state, which Decide has returned. The
// caller may then replace instances with ones of a higher throughput.
func (s *Scaler) IsShort(state State) bool {
	step := decider{policy: &s.policy, state: &state}
	return len(state.Instances) >= s.policy.Max && window(state.Samples).countAbove(step.throughput()) >= s.policy.Out
}

// maxLoad is the highest valid load in requests per second: far above any real one, and low enough that sums of rates do not overflow.
const maxLoad Rate = 1e12

func checkLoad(load Rate) error {
	if !(load >= 0 && load <= maxLoad) {
		return share.Invalid("load", "%v requests/s is outside 0 to %v", float64(load), float64(maxLoad))
	}
	return nil
}
