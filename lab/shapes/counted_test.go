package shapes

import (
	"maps"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// A remembered refusal must be what the model would have said: without the memory every pod goes to the same GPU.
func TestRefusalsChangeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		model func(share.PerMille) fitTest
		pods  int
	}{"turns": {slotTest, 400}, "layout": {rectangleTest, 60}} {
		t.Run(name, func(t *testing.T) {
			for family, draw := range Families() {
				for _, reserve := range []share.PerMille{0, 50} {
					pods := Draw(draw, c.pods, 9)
					forgetful := c.model(reserve)
					forgetful.implies = func(Pod, Pod) bool { return false }
					if !maps.Equal(fillWith(t, c.model(reserve), pods), fillWith(t, forgetful, pods)) {
						t.Errorf("%s, %s, reserve %d: placements differ", name, family, reserve)
					}
				}
			}
		})
	}
}

// Negative control: were every refusal taken for one of any other pod, placements would differ.
func TestRefusalsMatter(t *testing.T) {
	pods := Draw(Families()["uniform"], 400, 9)
	hasty := slotTest(0)
	hasty.implies = func(Pod, Pod) bool { return true }
	if maps.Equal(fillWith(t, slotTest(0), pods), fillWith(t, hasty, pods)) {
		t.Error("refusals were never asked for")
	}
}

func fillWith(t *testing.T, m fitTest, pods []Pod) placement {
	t.Helper()
	f := &Fleet{config: Config{GPUs: len(pods)}, learn: func(Pod) {}, home: map[int]location{}, fresh: newCounted(m)}
	on, err := fillAll(f, pods)
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// With a reserve, 96 % of the time can be harder to give than all of it: then the pod is in every configuration.
func TestFullQuotaAfterARefusal(t *testing.T) {
	f := newFleet(t, "slot", Config{GPUs: 1, Reserve: 50})
	for id, p := range []Pod{percent(40, 50), percent(40, 50)} {
		if _, ok := f.Place(id, p); !ok {
			t.Fatalf("%v is refused", p)
		}
	}
	if _, ok := f.Place(2, percent(96, 20)); ok {
		t.Error("96 % beside turns that need a reserve")
	}
	if _, ok := f.Place(3, percent(100, 20)); !ok {
		t.Error("full quota is refused")
	}
}
