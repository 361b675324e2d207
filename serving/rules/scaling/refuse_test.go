package scaling

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestNewRefuses(t *testing.T) {
	for field, policy := range map[string]Policy{
		"window":    {Window: -1},
		"window ":   {Window: time.Hour, Period: time.Millisecond},
		"period":    {Period: -time.Second},
		"out":       {Out: 41},
		"in":        {In: 40},
		"min":       {Min: -1},
		"max":       {Min: 11},
		"max ":      {Max: -1},
		"sharedFor": {SharedFor: -1},
		"warmFor":   {WarmFor: -1},
	} {
		_, err := New(policy, []Configuration{size})
		wantField(t, map[bool]string{true: field[:len(field)-1], false: field}[field[len(field)-1] == ' '], err)
	}
	if _, err := New(Policy{}, nil); !errors.Is(err, ErrUnservable) {
		t.Errorf("without a choice: %v", err)
	}
	_, err := New(Policy{}, []Configuration{{}})
	wantField(t, "sm", err)
}

func TestDecideRefuses(t *testing.T) {
	one := Instance{ID: 1, Configuration: size}
	for name, c := range map[string]struct {
		load  Rate
		state State
		field string
	}{
		"not a number":        {Rate(nan()), State{}, "load"},
		"negative":            {-1, State{}, "load"},
		"infinite":            {Rate(math.Inf(1)), State{}, "load"},
		"time goes back":      {1, State{Samples: []Sample{{At: 2 * time.Minute}}}, "samples"},
		"stored nonsense":     {1, State{Samples: []Sample{{Load: -1}}}, "load"},
		"unknown ID":          {1, State{Instances: []Instance{one}}, "instances"},
		"the same ID":         {1, State{LastID: 1, Instances: []Instance{one, one}}, "instances"},
		"no throughput":       {1, State{LastID: 1, Instances: []Instance{{ID: 1, Configuration: Configuration{Share: size.Share}}}}, "throughput"},
		"cold":                {1, State{LastID: 1, Instances: []Instance{{ID: 1, Configuration: size, Residency: Cold}}}, "residency"},
		"from the future":     {1, State{LastID: 1, Instances: []Instance{{ID: 1, Configuration: size, Since: time.Hour}}}, "since"},
		"no share whatsoever": {1, State{LastID: 1, Instances: []Instance{{ID: 1}}}, "sm"},
	} {
		t.Run(name, func(t *testing.T) {
			decisions, _, err := newScaler(t, Policy{}, size).Decide(time.Minute, Load{Rate: c.load}, c.state)
			if len(decisions) > 0 {
				t.Errorf("%v", decisions)
			}
			wantField(t, c.field, err)
		})
	}
}

// A predictor of one's own that answers nonsense is refused too.
func TestPredictorRefused(t *testing.T) {
	s := newScaler(t, Policy{Predict: func([]Rate) Rate { return Rate(nan()) }}, size)
	_, _, err := s.Decide(time.Second, Load{Rate: 1}, State{})
	wantField(t, "gap", err)
}

// FuzzDecide decides from arbitrary stored states. Those that are accepted keep the bounds of the policy, and can be continued.
func FuzzDecide(f *testing.F) {
	state, err := json.Marshal(State{Samples: []Sample{{1, 2}}, LastID: 2, Instances: []Instance{{ID: 2, Configuration: size, Residency: Warm}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state, int64(5), 3.0, 1, 5, int64(40))
	f.Add([]byte(`{}`), int64(-1), math.Inf(1), 0, 0, int64(0))
	f.Fuzz(func(t *testing.T, text []byte, now int64, load float64, low, high int, seconds int64) {
		var state State
		if json.Unmarshal(text, &state) != nil || len(state.Instances) > high {
			return
		}
		policy := Policy{Min: low, Max: high, Window: time.Duration(seconds) * time.Second}
		s, err := New(policy, []Configuration{size})
		if err != nil {
			return
		}
		for range 3 {
			_, next, err := s.Decide(time.Duration(now), Load{Rate: Rate(load)}, state)
			if _, typed := errors.AsType[*share.FieldError](err); err != nil && !typed {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			state = next
			if now += int64(time.Second); now < 0 {
				return
			}
			if hot := len(state.hotInstances()); hot < low || len(state.Instances) > max(high, 10) {
				t.Fatalf("%d hot of %d, minimum %d, maximum %d", hot, len(state.Instances), low, high)
			}
		}
	})
}
