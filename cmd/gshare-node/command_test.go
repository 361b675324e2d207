package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// TestBadInput holds that mistakes of the caller's end with code 2 and a message that names the place.
func TestBadInput(t *testing.T) {
	m := newMachine(t)
	file := func(text string) []string {
		name := write(t, filepath.Join(t.TempDir(), "node.yaml"), text)
		return []string{"--standalone", "--config", name}
	}
	devices := write(t, filepath.Join(t.TempDir(), "devices.yaml"), "nosuch: 1\n")
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"no mode":          {nil, []string{"--standalone"}},
		"unknown flag":     {[]string{"--alone"}, []string{"--alone"}},
		"flag value":       {[]string{"--standalone=perhaps"}, []string{"--standalone", "perhaps"}},
		"argument":         {[]string{"--standalone", "now"}, []string{"now"}},
		"uninstall, where": {[]string{"uninstall"}, []string{"kubernetes.nodeName", "NODE_NAME"}},
		"uninstall, what":  {[]string{"uninstall", "now"}, []string{"now"}},
		"no file":          {[]string{"--standalone", "--config", "/nowhere/node.yaml"}, []string{"--config", "/nowhere/node.yaml"}},
		"a directory":      {[]string{"--standalone", "--config", m.dir}, []string{"--config", m.dir}},
		"empty file":       {file(""), []string{"node.yaml", "NodeConfiguration"}},
		"not YAML":         {file("\t"), []string{"node.yaml"}},
		"unknown field":    {file(head + "windows: 1s\n"), []string{"node.yaml", "windows"}},
		"wrong type":       {file(head + "maxShares: many\n"), []string{"node.yaml", "maxShares"}},
		"bad window":       {file(head + "window: 30ms\n"), []string{"node.yaml", "window", "30ms"}},
		"bad duration":     {file(head + "turn: 5\n"), []string{"node.yaml"}},
		"no simulation":    {file(head + "simulatedKernels: true\n"), []string{"node.yaml", "simulatedKernels", "simulatedDevices"}},
		"public metrics":   {file(head + "debugAddress: 0.0.0.0:80\n"), []string{"node.yaml", "debugAddress", "0.0.0.0:80"}},
		"long directory":   {file(head + "directory: /" + strings.Repeat("d", config.MaxDirectory) + "\n"), []string{"directory: /d", "has 83 bytes, and can have 82"}},
		"no devices file":  {file(head + "simulatedDevices: /nowhere.yaml\ndirectory: " + m.dir + "\n"), []string{"simulatedDevices", "/nowhere.yaml"}},
		"bad devices file": {file(head + "simulatedDevices: " + devices + "\ndirectory: " + m.dir + "\n"), []string{"simulatedDevices", devices}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := node(test.args...).CombinedOutput()
			if code := codeOf(t, err); code != 2 {
				t.Errorf("code %d", code)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("it does not say %s: %s", want, out)
				}
			}
			if lines := strings.Count(string(out), "\n"); lines > 3 {
				t.Errorf("%d lines: %s", lines, out)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	out, err := node("--help").CombinedOutput()
	if codeOf(t, err) != 0 || !strings.Contains(string(out), "--config") || !strings.Contains(string(out), "gshare run") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStartAndStop ends an agent by each signal that asks for it: code 0, and no socket is left.
func TestStartAndStop(t *testing.T) {
	m := newMachine(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		a := m.start(t)
		if d := m.mustStatus(t).Devices; len(d) != 1 || d[0].UUID != uuid || !d[0].Simulated {
			t.Errorf("devices: %+v", d)
		}
		if code := a.end(s); code != 0 {
			t.Errorf("%v: code %d: %s", s, code, a.text())
		}
		if _, err := os.Lstat(m.socket()); !os.IsNotExist(err) {
			t.Errorf("%v: the socket is left: %v", s, err)
		}
	}
}

// TestStaleSocket starts an agent where another one was killed.
func TestStaleSocket(t *testing.T) {
	m := newMachine(t)
	m.start(t).end(syscall.SIGKILL)
	if _, err := os.Lstat(m.socket()); err != nil {
		t.Fatalf("the test shows nothing: %v", err)
	}
	m.start(t)
	m.mustStatus(t)
}

// TestSecondAgent: one directory has one agent, even if that one does not answer.
func TestSecondAgent(t *testing.T) {
	m := newMachine(t)
	first := m.start(t)
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out, err := node("--standalone", "--config", m.config).CombinedOutput()
	if code := codeOf(t, err); code != 1 || !strings.Contains(string(out), "another agent serves "+filepath.Dir(m.socket())) {
		t.Errorf("code %d: %s", code, out)
	}
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	m.mustStatus(t)
}

// TestSomethingElseInThePlace: what is no socket is renamed, not removed, and does not keep the agent from serving.
func TestSomethingElseInThePlace(t *testing.T) {
	m := newMachine(t)
	if err := os.Mkdir(filepath.Dir(m.socket()), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, m.socket(), "precious")
	m.start(t)
	m.mustStatus(t)
	kept, err := filepath.Glob(m.socket() + ".damaged-*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %q: %v", kept, err)
	}
	if text, err := os.ReadFile(kept[0]); string(text) != "precious" {
		t.Errorf("the file is gone: %v", err)
	}
}

// TestDirectoryInTheWay: the directory cannot be made.
func TestDirectoryInTheWay(t *testing.T) {
	m := newMachine(t)
	write(t, filepath.Join(m.dir, "run"), "")
	out, err := node("--standalone", "--config", m.config).CombinedOutput()
	if code := codeOf(t, err); code != 1 || !strings.Contains(string(out), "directory: ") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestDebugAddressInUse: an agent that cannot say how it does does not start.
func TestDebugAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	m := newMachine(t, "debugAddress: "+taken.Addr().String())
	out, err := node("--standalone", "--config", m.config).CombinedOutput()
	if code := codeOf(t, err); code != 1 || !strings.Contains(string(out), "debugAddress") {
		t.Errorf("code %d: %s", code, out)
	}
}
