package scaling

import (
	"reflect"
	"testing"
	"time"
)

func TestReplaceAndRemove(t *testing.T) {
	other := Configuration{Share: size.Share, Batch: 4, Throughput: 20}
	before := func() State {
		return State{LastID: 9, Instances: []Instance{
			{ID: 2, Configuration: size}, {ID: 5, Configuration: size, Since: time.Second}, {ID: 7, Configuration: size},
		}}
	}
	s := before()
	for _, c := range []struct {
		name string
		got  State
		want []Instance
	}{
		{"without the second", s.Without(5), []Instance{{ID: 2, Configuration: size}, {ID: 7, Configuration: size}}},
		{"without one that it does not contain", s.Without(4), before().Instances},
		{"an older one instead", s.Replace(5, 1, other), []Instance{
			{ID: 1, Configuration: other, Since: time.Second}, {ID: 2, Configuration: size}, {ID: 7, Configuration: size},
		}},
		{"a younger one instead", s.Replace(2, 6, other), []Instance{
			{ID: 5, Configuration: size, Since: time.Second}, {ID: 6, Configuration: other}, {ID: 7, Configuration: size},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !reflect.DeepEqual(c.got.Instances, c.want) || !reflect.DeepEqual(s, before()) {
				t.Errorf("%v, want %v; then %v", c.got.Instances, c.want, s)
			}
			if err := c.got.validate(time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
}
