package standalone

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// FuzzRequest lets anybody ask for anything: the answer is devices that exist, one for each vGPU, or a reason.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"sm": 30, "quota": 50, "memoryMiB": 1024}`))
	f.Add([]byte(`{"sm": 200, "memoryMiB": 1024, "vgpus": 2, "isolation": "exclusive"}`))
	f.Add([]byte(`{"sm": 9223372036854775807, "quota": -1, "memoryMiB": 9223372036854775807, "quotaLimit": 100}`))
	n := newNode(f, tempDir(f))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := control.DecodeRunRequest(bytes.NewReader(body))
		if err != nil {
			return
		}
		request, err := requestOf(r)
		if err != nil {
			if refusalOf(err).Reason == "" {
				t.Errorf("refused without a reason: %v", err)
			}
			return
		}
		picks, refusal := n.place(n.empty, podOf(0, request))
		switch container := request.Containers[0]; {
		case refusal != nil && refusal.Reason == "":
			t.Error("not placed, without a reason")
		case refusal == nil && len(picks) != container.VGPUs:
			t.Errorf("%d devices for %d vGPUs", len(picks), container.VGPUs)
		case refusal == nil && container.Share.SMRequest > share.Whole:
			t.Errorf("a vGPU of %v", container.Share.SMRequest)
		}
	})
}

// FuzzBorn: the name of a process may hold anything, and does not move the field.
func FuzzBorn(f *testing.F) {
	f.Add("cat", uint64(77))
	f.Add("a) S 1 2 (b", uint64(1<<63))
	f.Add(") ", uint64(0))
	f.Fuzz(func(t *testing.T, name string, start uint64) {
		got, err := parseBorn(fmt.Sprintf("12 (%s) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20", name, start))
		if err != nil || got != start {
			t.Errorf("got %d, %v; want %d", got, err, start)
		}
		_, _ = parseBorn(name) // whatever it says, it ends
	})
}
