package standalone

import (
	"bytes"
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
		picks, refusal := n.devices.findDevices(n.devices.empty, podOf(0, request))
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
