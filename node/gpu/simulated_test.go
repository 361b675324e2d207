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

const line = "- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920, numa: 0, nvlink: 1}\n"

func TestSimulated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "devices.yaml")
	if err := os.WriteFile(name, []byte("devices:\n"+line+"processes: [{pid: 7, slice: GPU-0}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Simulated{name}.Devices()
	if diff := cmp.Diff([]Device{{UUID: "GPU-0", Model: "A100", SMs: 108, Memory: 81920 * share.MiB, NUMA: new(0), NVLink: 1}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	processes, err := Simulated{name}.Processes()
	if diff := cmp.Diff([]Process{{PID: 7, Slice: "GPU-0"}}, processes); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := (Simulated{name + "x"}).Devices(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing":       {"", "no GPU"},
		"unknown field": {"devices:\n- {uuid: a, cores: 1}\n", "cores"},
		"no UUID":       {"devices:\n- {model: A100, sms: 1, memoryMiB: 1}\n", "UUID"},
		"no model":      {"devices:\n- {uuid: a, sms: 1, memoryMiB: 1}\n", "model"},
		"no SMs":        {"devices:\n- {uuid: a, model: A100, memoryMiB: 1}\n", "SMs"},
		"no memory":     {"devices:\n- {uuid: a, model: A100, sms: 1}\n", "memory"},
		"overflow":      {"devices:\n- {uuid: a, model: A100, sms: 1, memoryMiB: 9223372036854775807}\n", "memory"},
		"twice":         {"devices:\n" + line + line, "twice"},
		"NUMA node":     {"devices:\n- {uuid: a, model: A100, sms: 1, memoryMiB: 1, numa: -1}\n", "NUMA"},
		"NVLink set":    {"devices:\n- {uuid: a, model: A100, sms: 1, memoryMiB: 1, nvlink: 1024}\n", "NVLink"},
		"profile":       {"devices:\n- {uuid: a, model: A100, sms: 1, memoryMiB: 1, profile: 1g.5gb}\n", "mig"},
		"bad profile":   {"devices:\n- {uuid: a, model: A100, sms: 1, memoryMiB: 1, mig: [{uuid: b, profile: 1c, sms: 1, memoryMiB: 1}]}\n", "profile"},
		"no PID":        {"devices:\n" + line + "processes: [{slice: GPU-0}]\n", "PID"},
		"no slice":      {"devices:\n" + line + "processes: [{pid: 1}]\n", "slice"},
		"same instance": {"devices:\n- {uuid: a, model: A100, sms: 1, memoryMiB: 1, mig: [{uuid: a, profile: 1g.5gb, sms: 1, memoryMiB: 1}]}\n", "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _, err := parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v; want an error with %q", got, err, test.want)
			}
		})
	}
}

func TestSimulatedFaultsAndInstances(t *testing.T) {
	got, _, err := parse([]byte("devices:\n" +
		"- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 1, fault: Xid 79}\n" +
		"- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 1, mig: []}\n" +
		"- {uuid: GPU-2, model: A100, sms: 108, memoryMiB: 1, mig: [{uuid: MIG-0, profile: 1g.10gb, sms: 14, memoryMiB: 2, fault: lost}]}\n"))
	want := []Device{
		{UUID: "GPU-0", Model: "A100", SMs: 108, Memory: share.MiB, Fault: "Xid 79"},
		{UUID: "GPU-1", Index: 1, Model: "A100", SMs: 108, Memory: share.MiB, MIG: true},
		{UUID: "GPU-2", Index: 2, Model: "A100", SMs: 108, Memory: share.MiB, MIG: true, Instances: []Instance{
			{UUID: "MIG-0", Profile: "1g.10gb", SMs: 14, Memory: 2 * share.MiB, Fault: "lost"},
		}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}
