package rectangle

import "testing"

func listWith(boxes ...Box) *List {
	l := NewList()
	for id, b := range boxes {
		l.Place(id, b)
	}
	return l
}

func TestChoose(t *testing.T) {
	tight := func() *List { return ListOf([]Rect{rect(0, 0, 400, 500), rect(400, 900, 600, 100)}) }
	loose := func() *List { return ListOf([]Rect{rect(300, 0, 100, 500)}) }
	for name, c := range map[string]struct {
		lists []*List
		box   Box
		want  int
		none  bool
	}{
		"smallest left-over area of all": {[]*List{listWith(box(1000, 200)), listWith(box(1000, 600))}, box(900, 300), 1, false},
		"lower index among equals (F26)": {[]*List{listWith(box(500, 500)), listWith(box(500, 500))}, box(500, 500), 0, false},
		"in use before empty":            {[]*List{NewList(), listWith(box(100, 100))}, box(900, 900), 1, false},
		"re-pack before empty (F27)":     {[]*List{NewList(), loose()}, box(900, 1000), 1, false},
		"least to spare among re-packed": {[]*List{loose(), listWith(box(700, 700)), loose(), narrow()}, box(850, 1000), 3, false},
		"the first empty one":            {[]*List{listWith(wholeSlice.Box), NewList(), NewList()}, box(1, 1), 1, false},
		"fits as it is":                  {[]*List{NewList(), tight()}, box(600, 900), 1, false},
		"none":                           {[]*List{listWith(wholeSlice.Box)}, box(1, 1), 0, true},
		"no box":                         {[]*List{NewList()}, box(0, 1), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := Choose(c.lists, c.box); ok == c.none || got != c.want {
				t.Errorf("slice %d %v, want %d", got, ok, c.want)
			}
		})
	}
}

// narrow re-packs for a box 850 wide and has less to spare than one with a box 100 x 500 in its midst.
func narrow() *List { return ListOf([]Rect{rect(300, 0, 100, 500), rect(600, 0, 100, 500)}) }

func TestPutReplacesARepackedList(t *testing.T) {
	lists := []*List{NewList(), ListOf([]Rect{rect(300, 0, 100, 500)})}
	i, ok := Put(lists, 9, box(900, 1000))
	if !ok || i != 1 || len(lists[1].Placed()) != 2 {
		t.Fatalf("slice %d %v, placed %v", i, ok, lists[1].Placed())
	}
	checkPacking(t, boxesOf(lists[1]), rectsOf(lists[1]))
	if _, ok := Put(lists[1:], 10, box(500, 500)); ok {
		t.Error("placed where no slice has room")
	}
}
