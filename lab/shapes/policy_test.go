package shapes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func newFleet(t testing.TB, policy string, c Config) *Fleet {
	t.Helper()
	f, err := New(policy, c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// withMemory sets the memory of pods, so that it matters on some GPUs.
func withMemory(pods []Pod, r *rand.Rand) []Pod {
	pods = slices.Clone(pods)
	for k := range pods {
		pods[k].Memory = share.Bytes(r.IntN(30))
	}
	return pods
}

func TestEveryPolicyPacksWhatCanRun(t *testing.T) {
	for name, family := range Families() {
		for _, policy := range Policies() {
			for _, reserve := range []share.PerMille{0, 50} {
				c := Config{GPUs: 120, Memory: 100, Reserve: reserve}
				pods := withMemory(Draw(family, 120, 7), rand.New(rand.NewPCG(7, 7)))
				on, err := fillAll(newFleet(t, policy, c), pods)
				if err != nil {
					t.Fatal(name, policy, err)
				}
				seen, held := forPolicy(policy, pods, c)
				if err := verify(seen, on, held); err != nil {
					t.Errorf("%s, %s, reserve %d: %v", name, policy, reserve, err)
				}
			}
		}
	}
}

// Pods come and go on a small fleet; whatever is there must be able to run after every step.
func TestEveryPolicyStaysValidUnderChurn(t *testing.T) {
	for _, policy := range Policies() {
		for _, reserve := range []share.PerMille{0, 50} {
			r := rand.New(rand.NewPCG(3, uint64(reserve)))
			c := Config{GPUs: 3, Memory: 100, Reserve: reserve}
			f := newFleet(t, policy, c)
			pods := withMemory(Draw(Families()["uniform"], 400, 3), r)
			var ids []int
			on, refused := map[int]int{}, 0
			for id, p := range pods {
				for len(ids) > 0 && r.IntN(2) == 0 {
					k := r.IntN(len(ids))
					f.Remove(ids[k])
					delete(on, ids[k])
					ids = slices.Delete(ids, k, k+1)
				}
				if g, ok := f.Place(id, p); ok {
					ids, on[id] = append(ids, id), g
				} else {
					refused++
				}
				checkPresent(t, policy, pods, ids, on, c)
			}
			t.Logf("%s: %d refused", policy, refused)
		}
	}
}

func checkPresent(t *testing.T, policy string, pods []Pod, ids []int, on map[int]int, c Config) {
	t.Helper()
	var here []Pod
	where := placement{}
	for k, id := range ids {
		here = append(here, pods[id])
		where[k] = on[id]
	}
	seen, held := forPolicy(policy, here, c)
	if err := verify(seen, where, held); err != nil {
		t.Fatalf("%s, reserve %d: %v", policy, c.Reserve, err)
	}
}

// Rectangles must also be apart, and inside their GPU.
func TestMaxRectsStayApart(t *testing.T) {
	m, r := newMaxRects(50), rand.New(rand.NewPCG(5, 5))
	for id, p := range Draw(Families()["uniform"], 2000, 5) {
		if len(m.ids) > 0 && r.IntN(3) == 0 {
			m.remove(m.ids[r.IntN(len(m.ids))])
		}
		if _, ok := m.offer(p, maxWaste); ok {
			m.place(id, p)
		}
		for a, x := range m.rects {
			if x.X < 0 || x.Y < 0 || x.X+x.W > share.Whole || x.Y+x.H > share.Whole {
				t.Fatalf("%v sticks out", x)
			}
			if slices.ContainsFunc(m.rects[:a], x.Overlaps) {
				t.Fatalf("%v meets another", x)
			}
		}
	}
}

// Best short side fit: the narrow gap wins although the wide one has less area to spare.
func TestMaxRectsTakesTheShorterSide(t *testing.T) {
	m := &maxRectsGPU{free: []rectangle.Rect{
		{X: 0, Y: 0, Box: rectangle.Box{W: 300, H: 300}},
		{X: 500, Y: 0, Box: rectangle.Box{W: 210, H: 900}},
	}}
	if k := m.best(rectangle.Box{W: 200, H: 200}); k != 1 {
		t.Errorf("took rectangle %d", k)
	}
	if k := m.best(rectangle.Box{W: 301, H: 300}); k != -1 {
		t.Errorf("took rectangle %d, which is too small", k)
	}
}

// The paper's pods in all 420 orders (reference values 7.5, F27): without re-packing MRA needs a second GPU in 282.
func TestEightPods(t *testing.T) {
	shapes := map[rune]Pod{'R': percent(40, 12), 'N': percent(40, 24), 'B': percent(60, 50)}
	used := map[string]map[int]int{}
	everyOrder("", map[rune]int{'R': 4, 'N': 2, 'B': 2}, func(order string) {
		var pods []Pod
		for _, letter := range order {
			pods = append(pods, shapes[letter])
		}
		for _, policy := range Policies() {
			gpus, err := Fill(t.Context(), newFleet(t, policy, Config{GPUs: 8}), pods)
			if err != nil {
				t.Fatal(err)
			}
			if used[policy] == nil {
				used[policy] = map[int]int{}
			}
			used[policy][gpus]++
		}
	})
	if mra := used["mra"]; mra[1] != 138 || mra[2] != 282 {
		t.Errorf("mra: %v, want 138 x one GPU and 282 x two", mra)
	}
	for _, policy := range []string{"replan", "slot", "slot-best-fit"} {
		if used[policy][1] != 420 {
			t.Errorf("%s: %v, want one GPU always", policy, used[policy])
		}
	}
}

func everyOrder(prefix string, left map[rune]int, visit func(string)) {
	end := true
	for _, letter := range "RNB" {
		if left[letter] > 0 {
			end = false
			left[letter]--
			everyOrder(prefix+string(letter), left, visit)
			left[letter]++
		}
	}
	if end {
		visit(prefix)
	}
}

func TestPlaceRefuses(t *testing.T) {
	for _, policy := range Policies() {
		f := newFleet(t, policy, Config{GPUs: 1, Memory: 10})
		for name, p := range map[string]Pod{
			"no quota": {SM: 100}, "no SMs": {Quota: 100}, "too many SMs": {SM: 1001, Quota: 100}, "memory": {SM: 100, Quota: 100, Memory: 11},
		} {
			t.Run(name, func(t *testing.T) {
				if _, ok := f.Place(0, p); ok {
					t.Errorf("%s: %s is placed", policy, name)
				}
			})
		}
		if _, ok := f.Place(0, percent(100, 100)); !ok {
			t.Errorf("%s: a whole GPU is refused", policy)
		}
		if _, ok := f.Place(1, percent(5, 5)); ok {
			t.Errorf("%s: placed on a full GPU", policy)
		}
		f.Remove(7)
		f.Remove(0)
		if _, ok := f.Place(1, percent(5, 5)); !ok {
			t.Errorf("%s: refused on an empty GPU", policy)
		}
		half := percent(100, 47)
		f.Place(2, half)
		f.Place(3, half)
		f.Remove(2)
		if _, ok := f.Place(4, half); !ok {
			t.Errorf("%s: what was given back is not free", policy)
		}
	}
	f := newFleet(t, "slot", Config{GPUs: 1, Memory: 10})
	for id := range 3 {
		f.Place(id, Pod{SM: 10, Quota: 10, Memory: 5})
	}
	f.Remove(1)
	if _, ok := f.Place(4, Pod{SM: 10, Quota: 10, Memory: 5}); !ok || len(f.home) != 2 {
		t.Error("memory is not given back")
	}
	if _, err := New("nothing", Config{}); err == nil {
		t.Error("a policy called nothing")
	}
}
