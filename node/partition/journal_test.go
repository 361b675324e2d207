package partition

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// FuzzRecord: any text is refused, or parsed to a record that encodes to an equal one.
func FuzzRecord(f *testing.F) {
	whole := record{Version: recordVersion, Boot: "b", Device: "GPU-a", Made: []placement{{"1g.10gb", 3}}, Intent: &intent{geometry.DestroyGPU, placement{"1g.10gb", 3}}}
	f.Add(whole.encode())
	f.Add(record{Version: recordVersion, Boot: "b", Device: "GPU-a"}.encode())
	f.Add([]byte(`{"version":1,"boot":"b","device":"d","made":[{"profile":"1g.5gb+me","start":-1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		if err := r.validate(); err != nil {
			t.Fatal("parsed, and not valid:", err)
		}
		again, err := parseRecord(r.encode())
		if err != nil || !bytes.Equal(again.encode(), r.encode()) {
			t.Fatalf("%q became %q: %v", r.encode(), again.encode(), err)
		}
	})
}

// TestRecordGolden: a stored journal is parsed and encoded as it was by earlier agents of this version.
func TestRecordGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/mig-GPU-a.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRecord(golden)
	if err != nil || r.Boot != "b" || r.Device != "GPU-a" || len(r.Made) != 2 || r.Made[1] != (placement{"2g.20gb", 4}) ||
		r.Intent.Action != geometry.CreateGPU || r.Intent.placement != (placement{"1g.10gb", 6}) {
		t.Fatalf("decoded %+v, %v", r, err)
	}
	if !bytes.Equal(r.encode(), golden) {
		t.Errorf("encoded again: %s", r.encode())
	}
}

// TestParseRefuses: a record that breaks any one rule is refused.
func TestParseRefuses(t *testing.T) {
	good := `{"version":1,"boot":"b","device":"d","made":[{"profile":"1g.10gb","start":3}],"intent":{"action":"create GPU instance","profile":"2g.20gb","start":4}}`
	if _, err := parseRecord([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`"version":1`, `"version":2`}, {`"boot":"b"`, `"boot":""`}, {`"device":"d"`, `"device":""`}, {`"made"`, `"mad"`},
		{`1g.10gb`, `big`}, {`"start":3`, `"start":8`}, {`"start":3`, `"start":-1`}, {`"start":3`, `"start":"3"`},
		{`create GPU`, `make GPU`}, {`"start":4`, `"start":9`}, {`"made":[`, `"made":[{"profile":"1g.10gb","start":3},`}, {`}}`, `}}}`}, {`}}`, `}`},
	} {
		t.Run(c[1]+" for "+c[0], func(t *testing.T) {
			if r, err := parseRecord([]byte(strings.Replace(good, c[0], c[1], 1))); err == nil {
				t.Errorf("got %+v, want an error", r)
			}
		})
	}
}

func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal")
	f := File(name)
	if text, err := f.Load(); text != nil || err != nil {
		t.Fatalf("before the first Save: got %q, %v", text, err)
	}
	for _, text := range []string{"a long first text", "short"} {
		if err := f.Save([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(); string(got) != text || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := os.Mkdir(name+".next", 0o755); err != nil { // nothing can be written there
		t.Fatal(err)
	}
	if err := f.Save([]byte("lost")); err == nil {
		t.Error("got no error for a file that cannot be written")
	}
	if got, _ := f.Load(); string(got) != "short" {
		t.Errorf("after a failure: got %q", got)
	}
}

func TestBootID(t *testing.T) {
	a, err := BootID()
	if b, _ := BootID(); err != nil || a == "" || a != b || strings.ContainsAny(a, " \n") {
		t.Errorf("%q, then %q, %v", a, b, err)
	}
}

// TestCompleted: completing an intent adds or removes its instance.
func TestCompleted(t *testing.T) {
	p := placement{"1g.10gb", 3}
	for _, c := range []struct {
		action      geometry.Action
		before, now []placement
	}{
		{geometry.CreateGPU, nil, []placement{p}}, {geometry.CreateCompute, []placement{p}, []placement{p}},
		{geometry.DestroyCompute, []placement{p}, []placement{p}}, {geometry.DestroyGPU, []placement{p}, nil},
	} {
		t.Run(string(c.action), func(t *testing.T) {
			r := record{Made: c.before, Intent: &intent{c.action, p}}.completed()
			if !slices.Equal(r.Made, c.now) || r.Intent != nil {
				t.Errorf("got %+v", r)
			}
		})
	}
}
