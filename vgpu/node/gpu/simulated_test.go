package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const line = "- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920}\n"

func TestSimulated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "devices.yaml")
	if err := os.WriteFile(name, []byte("devices:\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Simulated{name}.Devices()
	if diff := cmp.Diff([]Device{{"GPU-0", "A100", 108, 81920 * share.MiB}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := (Simulated{name + "x"}).Devices(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestParseDevicesRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing":       {"", "no GPU"},
		"unknown field": {"devices:\n- {uuid: a, cores: 1}\n", "cores"},
		"no UUID":       {"devices:\n- {model: A100, sms: 1, memoryMiB: 1}\n", "UUID"},
		"no model":      {"devices:\n- {uuid: a, sms: 1, memoryMiB: 1}\n", "model"},
		"no SMs":        {"devices:\n- {uuid: a, model: A100, memoryMiB: 1}\n", "SMs"},
		"no memory":     {"devices:\n- {uuid: a, model: A100, sms: 1}\n", "memory"},
		"overflow":      {"devices:\n- {uuid: a, model: A100, sms: 1, memoryMiB: 9223372036854775807}\n", "memory"},
		"twice":         {"devices:\n" + line + line, "twice"},
	} {
		if got, err := parseDevices([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v; want an error with %q", name, got, err, test.want)
		}
	}
}
