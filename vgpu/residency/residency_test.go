package residency

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestCharge(t *testing.T) {
	s := share.Share{SMRequest: 240, SMLimit: 480, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 8 * share.MiB}
	for level, want := range map[Level]share.Share{
		Hot: s, Shared: {Memory: 8 * share.MiB}, Warm: {Memory: 3 * share.MiB}, Cold: {},
	} {
		t.Run(level.String(), func(t *testing.T) {
			if got := level.Charge(s, 3*share.MiB); got != want {
				t.Errorf("charge is %v, want %v", got, want)
			}
		})
	}
	if got := Warm.Charge(s, 9*share.MiB); got.Memory != s.Memory {
		t.Errorf("a parked process is charged %v, more than its share", got)
	}
}

func TestCounted(t *testing.T) {
	for name, test := range map[string]struct {
		w    Wanted
		r    Reached
		want Level
	}{
		"no instance":         {Fixed, Reached{}, Hot},
		"not started":         {Wanted{Seq: 1, Level: Shared}, Reached{}, Hot},
		"start refused":       {Wanted{Seq: 1, Level: Shared}, Reached{Seq: 1, Refused: true}, Hot},
		"down, not yet there": {Wanted{Seq: 2, Level: Shared}, Reached{Seq: 1, Level: Hot}, Hot},
		"down":                {Wanted{Seq: 2, Level: Shared}, Reached{Seq: 2, Level: Shared}, Shared},
		"parked":              {Wanted{Seq: 3, Level: Warm, Drained: true}, Reached{Seq: 3, Level: Warm}, Warm},
		"up, not yet there":   {Wanted{Seq: 3, Level: Hot}, Reached{Seq: 2, Level: Shared}, Hot},
		"up refused":          {Wanted{Seq: 3, Level: Hot}, Reached{Seq: 3, Level: Shared, Refused: true}, Hot},
		"to be deleted":       {Wanted{Seq: 4, Level: Cold}, Reached{Seq: 2, Level: Shared}, Hot},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Counted(test.w, test.r); got != test.want {
				t.Errorf("counts as %v, want %v", got, test.want)
			}
		})
	}
}

func TestStart(t *testing.T) {
	for name, test := range map[string]struct {
		w    Wanted
		room Level // highest level that fits
		want Reached
		ok   bool
	}{
		"no instance":   {Fixed, Hot, Reached{Level: Hot}, true},
		"hot":           {Wanted{Seq: 1, Level: Hot}, Hot, Reached{Seq: 1, Level: Hot}, true},
		"shared":        {Wanted{Seq: 1, Level: Shared}, Shared, Reached{Seq: 1, Level: Shared}, true},
		"to be parked":  {Wanted{Seq: 2, Level: Warm}, Shared, Reached{Seq: 1, Level: Shared}, true},
		"no room":       {Wanted{Seq: 1, Level: Hot}, Shared, Reached{Seq: 1, Refused: true}, false},
		"to be deleted": {Wanted{Seq: 2, Level: Cold}, Hot, Reached{Seq: 2, Refused: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Start(test.w, func(l Level) bool { return l <= test.room })
			if got != test.want || ok != test.ok {
				t.Errorf("record is %+v, %v, want %+v, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

// TestNext runs one instance until the agent is idle, and compares what it did.
func TestNext(t *testing.T) {
	hot, shared, parked := Reached{Seq: 1, Level: Hot}, Reached{Seq: 2, Level: Shared}, Reached{Seq: 3, Level: Warm, Memory: 5}
	for name, test := range map[string]struct {
		i    Instance
		room Level
		want string
	}{
		"settled":                   {Instance{Wanted{1, Hot, false}, hot, hot, Hot, 0, 0, false}, Hot, ""},
		"no instance":               {Instance{Fixed, Reached{}, Reached{Level: Hot}, Hot, 0, 0, false}, Hot, ""},
		"down":                      {Instance{Wanted{2, Shared, false}, hot, hot, Hot, 0, 0, false}, Cold, "enforce Shared, save 2 Shared, report"},
		"up":                        {Instance{Wanted{3, Hot, false}, shared, shared, Shared, 0, 0, false}, Hot, "save 3 Hot, enforce Hot, report"},
		"up refused":                {Instance{Wanted{3, Hot, false}, shared, shared, Shared, 0, 0, false}, Cold, "save 3 Shared refused, report"},
		"back before it was down":   {Instance{Wanted{3, Hot, false}, hot, hot, Hot, 0, 0, false}, Cold, "save 3 Hot, report"},
		"back, half-way down":       {Instance{Wanted{3, Hot, false}, hot, hot, Shared, 0, 0, false}, Cold, "save 3 Hot, enforce Hot, report"},
		"park, gateways may send":   {Instance{Wanted{2, Warm, false}, hot, hot, Hot, 0, 0, false}, Hot, ""},
		"park":                      {Instance{Wanted{2, Warm, true}, hot, hot, Hot, 0, 0, false}, Hot, "enforce Warm, save 2 Warm, report"},
		"cannot be parked":          {Instance{Wanted{2, Warm, true}, hot, hot, Unknown, 0, 0, true}, Hot, "enforce Hot, save 2 Hot refused, report"},
		"parked with what it keeps": {Instance{Wanted{3, Warm, true}, shared, shared, Warm, 5, 0, false}, Hot, "save 3 Warm keeps 5, report"},
		"parked, in host memory":    {Instance{Wanted{3, Warm, true}, shared, shared, Warm, 5, 7, false}, Hot, "save 3 Warm keeps 5 host 7, report"},
		"parked, up refused":        {Instance{Wanted{4, Hot, false}, parked, parked, Warm, 0, 0, false}, Warm, "save 4 Warm refused keeps 5, report"},
		"parked, wanted so again":   {Instance{Wanted{4, Warm, false}, parked, parked, Warm, 0, 0, false}, Warm, "save 4 Warm keeps 5, report"},
		"parked, up":                {Instance{Wanted{4, Shared, false}, parked, parked, Warm, 0, 0, false}, Hot, "save 4 Shared, enforce Shared, report"},
		"to be deleted":             {Instance{Wanted{2, Cold, true}, hot, hot, Hot, 0, 0, false}, Hot, ""},
		"restarted":                 {Instance{Wanted{1, Hot, false}, hot, hot, Unknown, 0, 0, false}, Hot, "enforce Hot"},
		"restarted, not reported":   {Instance{Wanted{2, Shared, false}, hot, shared, Unknown, 0, 0, false}, Hot, "enforce Shared, report"},
		"restarted, sees old state": {Instance{Wanted{1, Hot, false}, hot, shared, Unknown, 0, 0, false}, Hot, "enforce Shared, report"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := runNext(test.i, test.room); got != test.want {
				t.Errorf("did %q, want %q", got, test.want)
			}
		})
	}
}

func runNext(i Instance, room Level) string {
	var did []string
	for range 10 {
		step := Next(i, func(l Level) bool { return l <= room })
		switch step.Effect {
		case Idle:
			return strings.Join(did, ", ")
		case Enforce:
			i.Enforced = step.Level
			did = append(did, "enforce "+step.Level.String())
		case Save:
			i.Record = step.Record
			did = append(did, "save "+describe(step.Record))
		case Report:
			i.Reached = step.Record
			did = append(did, "report")
		}
	}
	return "no end"
}

func describe(r Reached) string {
	text := string('0'+rune(r.Seq)) + " " + r.Level.String()
	if r.Refused {
		text += " refused"
	}
	if r.Memory > 0 {
		text += " keeps " + string('0'+rune(r.Memory))
	}
	if r.Host > 0 {
		text += " host " + string('0'+rune(r.Host))
	}
	return text
}

func TestChange(t *testing.T) {
	hot := Reached{Seq: 1, Level: Hot}
	for name, test := range map[string]struct {
		w    Wanted
		r    Reached
		to   Level
		want Wanted
		ok   bool
	}{
		"down":                     {Wanted{1, Hot, false}, hot, Shared, Wanted{2, Shared, false}, true},
		"nothing":                  {Wanted{1, Hot, false}, hot, Hot, Wanted{1, Hot, false}, false},
		"up":                       {Wanted{2, Shared, false}, hot, Hot, Wanted{3, Hot, false}, true},
		"down on unanswered raise": {Wanted{3, Hot, false}, Reached{Seq: 2, Level: Shared}, Shared, Wanted{3, Hot, false}, false},
		"up before gateways stop":  {Wanted{2, Warm, false}, hot, Hot, Wanted{3, Hot, false}, true},
		"up while it is parked":    {Wanted{2, Warm, true}, hot, Hot, Wanted{2, Warm, true}, false},
		"up from parked":           {Wanted{2, Warm, true}, Reached{Seq: 2, Level: Warm}, Hot, Wanted{3, Hot, false}, true},
		"give up at any time":      {Wanted{3, Hot, false}, hot, Cold, Wanted{4, Cold, false}, true},
		"given up":                 {Wanted{4, Cold, false}, hot, Hot, Wanted{4, Cold, false}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := Change(test.w, test.r, test.to); got != test.want || ok != test.ok {
				t.Errorf("wanted is %+v, %v, want %+v, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

func TestReview(t *testing.T) {
	hot, lost, refused := Reached{Seq: 1, Level: Hot}, Reached{Seq: 1, Refused: true}, Reached{Seq: 3, Level: Shared, Refused: true}
	for name, test := range map[string]struct {
		w                 Wanted
		r                 Reached
		replaced, drained bool
		want              Task
	}{
		"reached":               {w: Wanted{1, Hot, false}, r: Reached{Seq: 1, Level: Hot}},
		"under way":             {w: Wanted{2, Shared, false}, r: Reached{Seq: 1, Level: Hot}},
		"refused":               {w: Wanted{3, Hot, false}, r: refused, want: Task{Action: Replace}},
		"replaced":              {w: Wanted{3, Hot, false}, r: refused, replaced: true, want: Task{Write, Wanted{4, Shared, false}}},
		"reverted":              {w: Wanted{4, Shared, false}, r: refused, replaced: true},
		"start refused":         {w: Wanted{1, Hot, false}, r: lost, replaced: true, want: Task{Write, Wanted{2, Cold, false}}},
		"cannot be parked":      {w: Wanted{3, Warm, true}, r: refused, want: Task{Write, Wanted{4, Shared, false}}},
		"to be parked":          {w: Wanted{2, Warm, false}, r: Reached{Seq: 1, Level: Hot}, want: Task{Action: Drain}},
		"drained":               {w: Wanted{2, Warm, false}, r: hot, drained: true, want: Task{Write, Wanted{2, Warm, true}}},
		"to be deleted":         {w: Wanted{2, Cold, false}, r: Reached{Seq: 1, Level: Hot}, want: Task{Action: Drain}},
		"drained to be deleted": {w: Wanted{2, Cold, false}, r: hot, drained: true, want: Task{Write, Wanted{2, Cold, true}}},
		"delete":                {w: Wanted{2, Cold, true}, r: Reached{Seq: 1, Level: Hot}, want: Task{Action: Delete}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Review(test.w, test.r, test.replaced, test.drained); got != test.want {
				t.Errorf("task is %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestGateway(t *testing.T) {
	for name, test := range map[string]struct {
		w    Wanted
		r    Reached
		send bool
	}{
		"hot":           {w: Wanted{1, Hot, false}, r: Reached{Seq: 1, Level: Hot}, send: true},
		"not started":   {w: Wanted{1, Hot, false}},
		"shared":        {w: Wanted{2, Shared, false}, r: Reached{Seq: 2, Level: Shared}, send: true},
		"on its way up": {w: Wanted{3, Hot, false}, r: Reached{Seq: 2, Level: Shared}, send: true},
		"still parked":  {w: Wanted{4, Hot, false}, r: Reached{Seq: 3, Level: Warm}},
		"to be parked":  {w: Wanted{3, Warm, false}, r: Reached{Seq: 2, Level: Shared}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MaySend(test.w, test.r); got != test.send {
				t.Errorf("may send: %v, want %v", got, test.send)
			}
		})
	}
}

func TestVictims(t *testing.T) {
	from := []Candidate{
		{"a", "x", 50 * time.Second}, {"b", "y", 10 * time.Second}, {"c", "x", 20 * time.Second}, {"d", "y", 40 * time.Second},
		{"e", "x", 30 * time.Second},
	}
	memory := map[string]int{"a": 4, "b": 2, "c": 1, "d": 2, "e": 3}
	for name, test := range map[string]struct {
		need map[string]int // memory by slice
		want string
	}{
		"one is enough":             {map[string]int{"x": 9, "y": 2}, "b"},
		"two of a slice":            {map[string]int{"x": 9, "y": 4}, "b d"},
		"the slice idle for longer": {map[string]int{"x": 4, "y": 4}, "c e"},
		"the small one is not":      {map[string]int{"x": 3, "y": 9}, "e"},
		"nothing suffices":          {map[string]int{"x": 9, "y": 5}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range Victims(from, func(place string, without []Candidate) bool {
				sum := 0
				for _, c := range without {
					sum += memory[c.ID]
				}
				return sum >= test.need[place]
			}) {
				got = append(got, v.ID)
			}
			if !slices.Equal(got, strings.Fields(test.want)) {
				t.Errorf("victims are %v, want %v", got, test.want)
			}
		})
	}
}

func TestText(t *testing.T) {
	for name, test := range map[string]struct {
		w    Wanted
		want string
	}{
		"hot":     {Wanted{1, Hot, false}, `{"v":1,"residency":{"seq":1,"level":"Hot"}}`},
		"drained": {Wanted{7, Warm, true}, `{"v":1,"residency":{"seq":7,"level":"Warm","drained":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := test.w.Encode()
			if err != nil || text != test.want {
				t.Fatalf("text is %s, %v, want %s", text, err, test.want)
			}
			if got, err := DecodeWanted(text); err != nil || got != test.w {
				t.Errorf("decoded %+v, %v", got, err)
			}
		})
	}
	r := Reached{Seq: 3, Level: Shared, Refused: true}
	text, err := r.Encode()
	if want := `{"v":1,"residency":{"seq":3,"level":"Shared","refused":true}}`; err != nil || text != want {
		t.Fatalf("text is %s, %v, want %s", text, err, want)
	}
	if got, err := DecodeReached(text); err != nil || got != r {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func TestBadText(t *testing.T) {
	for name, text := range map[string]string{
		"empty":         ``,
		"other version": `{"v":2,"residency":{"seq":1,"level":"Hot"}}`,
		"no version":    `{"residency":{"seq":1,"level":"Hot"}}`,
		"no value":      `{"v":1}`,
		"unknown field": `{"v":1,"residency":{"seq":1,"level":"Hot","since":2}}`,
		"unknown level": `{"v":1,"residency":{"seq":1,"level":"Tepid"}}`,
		"no seq":        `{"v":1,"residency":{"level":"Hot"}}`,
		"text follows":  `{"v":1,"residency":{"seq":1,"level":"Hot"}}}`,
		"hot, drained":  `{"v":1,"residency":{"seq":1,"level":"Hot","drained":true}}`,
		"hot, parked":   `{"v":1,"residency":{"seq":1,"level":"Hot","memory":1}}`,
		"hot, in host":  `{"v":1,"residency":{"seq":1,"level":"Hot","host":1}}`,
		"below nothing": `{"v":1,"residency":{"seq":1,"level":"Warm","memory":-1}}`,
		"long":          strings.Repeat(" ", 300) + `{"v":1,"residency":{"seq":1,"level":"Hot"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, errWanted := DecodeWanted(text)
			_, errReached := DecodeReached(text)
			if errWanted == nil || errReached == nil {
				t.Errorf("decoded: %v, %v", errWanted, errReached)
			}
		})
	}
	if _, err := (Wanted{Seq: 1, Level: Unknown}).Encode(); err == nil {
		t.Error("Unknown was encoded")
	}
}
