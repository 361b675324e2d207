package store

import (
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestSurvivors(t *testing.T) {
	c := Control(t.TempDir())
	a := share.Weights{Digest: share.Digest("sha256:" + strings.Repeat("1", 64)), Memory: 4 * share.MiB}
	b := share.Weights{Digest: share.Digest("sha256:" + strings.Repeat("2", 64)), Memory: 2 * share.MiB}
	check := func(when string, want map[share.Digest]share.Bytes) {
		t.Helper()
		held, err := c.Held()
		got := map[share.Digest]share.Bytes{}
		for d, bytes := range held {
			got[share.Digest(d.String())] = bytes
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", when, got, err, want)
		}
	}
	add := func(s Survivors) {
		t.Helper()
		if err := c.AddSurvivors(s); err != nil {
			t.Fatal(err)
		}
	}
	check("the first store", map[share.Digest]share.Bytes{})
	add(Survivors{PIDs: []int{1 << 30}, Weights: []share.Weights{a}})
	check("all have ended", map[share.Digest]share.Bytes{})
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	add(Survivors{PIDs: []int{other.Process.Pid, 1 << 30}, Weights: []share.Weights{a, b}})
	check("one lives", map[share.Digest]share.Bytes{a.Digest: a.Memory, b.Digest: b.Memory})
	add(Survivors{PIDs: []int{os.Getpid()}, Weights: []share.Weights{b}})
	check("and one of a second store", map[share.Digest]share.Bytes{a.Digest: a.Memory, b.Digest: 2 * b.Memory})
	_, _ = other.Process.Kill(), other.Wait()
	check("the first has ended", map[share.Digest]share.Bytes{b.Digest: b.Memory})
	for text, name := range map[string]string{"{": "damaged", `{"version":2}`: "of another version", `{"version":1,"generations":[{"processes":[{"pid":1}]}]}`: ""} {
		if err := os.WriteFile(c.survivorsFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if held, err := c.Held(); (err != nil) != (name != "") {
			t.Errorf("%s: %v, %v", name, held, err)
		}
	}
}
