package standalone

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func readGolden(t *testing.T) string {
	text, err := os.ReadFile("testdata/run.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRecordGolden compares with a record as agents have it on disk: it must mean the same to every later agent of this version.
func TestRecordGolden(t *testing.T) {
	golden := readGolden(t)
	r, err := decodeRecord([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	want := savedShare{SMRequest: 300, SMLimit: 500, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 4 << 30}
	if r.Share != want || r.Class != share.Elastic || r.SMLimit != 400 || r.StartTime != 123456 || r.UID != 1000 || r.PID != 4711 {
		t.Errorf("decoded %+v", r)
	}
	text, err := json.Marshal(r)
	if diff := cmp.Diff(golden, string(text)+"\n"); err != nil || diff != "" {
		t.Errorf("encoded again: %v\n%s", err, diff)
	}
}

func TestDecodeRecordRefuses(t *testing.T) {
	golden := readGolden(t)
	for name, test := range map[string]struct{ old, new string }{
		"newer version":    {`"version":1`, `"version":2`},
		"no version":       {`"version":1,`, ``},
		"renamed field":    {`"startTime"`, `"born"`},
		"renamed share":    {`"sm":300`, `"SMRequest":300`},
		"share of zero":    {`"sm":300`, `"sm":0`},
		"share above all":  {`"smLimit":500`, `"smLimit":1001`},
		"no memory":        {`"memory":4294967296`, `"memory":0`},
		"no device":        {`["GPU-1"]`, `[]`},
		"unknown class":    {`"elastic"`, `"plastic"`},
		"unknown priority": {`"slo"`, `"slow"`},
		"torn":             {`}}`, ``},
		"no process":       {`"pid":4711`, `"pid":0`},
		"negative PID":     {`"pid":4711`, `"pid":-4711`},
		"absurd PID":       {`"pid":4711`, `"pid":1e30`},
		"text as PID":      {`"pid":4711`, `"pid":"4711"`},
		"device twice":     {`["GPU-1"]`, `["GPU-1","GPU-1"]`},
		"empty device":     {`["GPU-1"]`, `[""]`},
		"low SM limit":     {`"smLimit":400,"cgroup"`, `"smLimit":299,"cgroup"`},
		"high SM limit":    {`"smLimit":400,"cgroup"`, `"smLimit":501,"cgroup"`},
		"negative quota":   {`"cgroup"`, `"quota":-1,"cgroup"`},
		"high quota":       {`"cgroup"`, `"quota":1001,"cgroup"`},
		"negative limit":   {`5368709120`, `-1`},
		"another cgroup":   {`gshare-a1b2c3d4`, `gshare-z`},
		"relative cgroup":  {`/user.slice/`, `user.slice/`},
		"cgroup above":     {`/user.slice/`, `/user.slice/../`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(golden, test.old, test.new, 1)
			if r, err := decodeRecord([]byte(text)); err == nil || text == golden {
				t.Errorf("%s was decoded as %+v", text, r)
			}
		})
	}
}
