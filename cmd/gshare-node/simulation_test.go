package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// simulated is a machine whose agent simulates the kernels on its device.
type simulated struct {
	*machine
	folder, metrics string
}

func newSimulated(t *testing.T) *simulated {
	t.Helper()
	s := &simulated{folder: built(t), metrics: freeAddress(t)}
	s.machine = newMachine(t, "simulatedKernels: true", "debugAddress: "+s.metrics)
	return s
}

// run starts a program by gshare run on a part of the SMs, and waits until its standard error has a line with the text.
func (s *simulated) run(t *testing.T, ready string, sm int, program ...string) *instance {
	t.Helper()
	cmd := exec.Command(filepath.Join(s.folder, "gshare"), append([]string{"run", "--socket", s.socket(), "--name", "a", "--wait",
		"--sm", fmt.Sprint(sm), "--mem", "1Gi", "--"}, program...)...)
	cmd.Env = append(os.Environ(), "PATH="+s.folder+":"+os.Getenv("PATH"), "LD_LIBRARY_PATH="+s.folder, "HOST=127.0.0.1", "PORT=0")
	return startInstance(t, cmd, ready)
}

// spin starts a program that launches kernels without end, on half of the SMs.
func (s *simulated) spin(t *testing.T, kernel string) *instance {
	t.Helper()
	return s.run(t, "begins", 50, "sh", "-c", "echo begins >&2; exec spin "+kernel)
}

// model starts gshare-model, whose requests take 22 ms on a whole GPU, and returns its URL.
func (s *simulated) model(t *testing.T, sm int) (m *instance, url string) {
	t.Helper()
	m = s.run(t, "msg=listening", sm, "gshare-model", "--name", "m", "--weights", "1Mi", "--batch", "8=22ms")
	return m, "http://" + (&serving{instance: m}).find(t, `address=(\S+)`) + "/"
}

// total returns how many kernels the device has run and how long they took, by the simulation's own account.
func (s *simulated) total(t *testing.T) (kernels, seconds float64) {
	t.Helper()
	families := scrape(t, s.metrics)
	value := func(name string) float64 { return families[name].Metric[0].Counter.GetValue() }
	return value("gshare_simulation_kernels_total"), value("gshare_simulation_kernel_seconds_total")
}

func post(url string) error {
	response, err := http.Post(url, "text/plain", strings.NewReader("hello"))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// TestSimulatedKernels: kernels take their time on a whole device, and twice that on half of its SMs.
func TestSimulatedKernels(t *testing.T) {
	s := newSimulated(t)
	s.start(t)
	for sm, want := range map[int]time.Duration{100: 22 * time.Millisecond, 50: 44 * time.Millisecond} {
		m, url := s.model(t, sm)
		kernels, seconds := s.total(t)
		begin := time.Now()
		const requests = 5
		for range requests {
			if err := post(url); err != nil {
				t.Fatal(err, m.text())
			}
		}
		took := time.Since(begin)
		nowKernels, nowSeconds := s.total(t)
		each := time.Duration((nowSeconds - seconds) / requests * float64(time.Second)).Round(time.Microsecond)
		if n := nowKernels - kernels; n != requests || each != want {
			t.Errorf("on %d %% of the SMs %v kernels, each of %v, want %d of %v", sm, n, each, requests, want)
		}
		if took < requests*want { // no upper bound: the machine may be busy
			t.Errorf("on %d %% of the SMs %d requests took %v", sm, requests, took)
		}
		m.end(syscall.SIGTERM)
		eventually(t, "its share is back", func() bool { return len(s.mustStatus(t).Runs) == 0 })
	}
}

// TestSimulatedKernelsOfTheDead kills a program whose queue is full: its kernels go with it, and another program gets the device.
func TestSimulatedKernelsOfTheDead(t *testing.T) {
	s := newSimulated(t)
	s.start(t)
	dead := s.spin(t, "spin_ns200000000_sm1000_blocks64")
	eventually(t, "its kernels run", func() bool { kernels, _ := s.total(t); return kernels > 1 })
	dead.end(syscall.SIGKILL)
	eventually(t, "its share is back", func() bool { return len(s.mustStatus(t).Runs) == 0 })
	kernels, _ := s.total(t)
	_, url := s.model(t, 100)
	if err := post(url); err != nil {
		t.Fatal(err)
	}
	if now, _ := s.total(t); now != kernels+1 {
		t.Errorf("%v kernels ended since, want the other program's alone", now-kernels)
	}
}

// TestSimulationEnds: programs end with the agent that simulates their device, as with a device that is lost, and the next agent simulates
// again.
func TestSimulationEnds(t *testing.T) {
	s := newSimulated(t)
	a := s.start(t)
	spin := s.spin(t, "spin_ns1000000_sm500_blocks64")
	eventually(t, "its kernels run", func() bool { kernels, _ := s.total(t); return kernels > 0 })
	m, url := s.model(t, 50)
	if err := post(url); err != nil {
		t.Fatal(err)
	}
	a.end(syscall.SIGKILL)
	s.start(t)
	if code := spin.end(0); code != 1 || !strings.Contains(spin.text(), "the simulation of the GPUs has ended") {
		t.Errorf("code %d: %s", code, spin.text())
	}
	if err := post(url); err == nil { // its driver notices at its next call
		t.Error("a request is answered by a device of another simulation")
	}
	if code := m.end(0); code != 1 || !strings.Contains(m.text(), "the simulation of the GPUs has ended") {
		t.Errorf("code %d: %s", code, m.text())
	}
	if _, url = s.model(t, 100); post(url) != nil {
		t.Error("the next agent does not simulate")
	}
}

// TestSimulatedKernelsRefused: what the simulated driver could not have is refused.
func TestSimulatedKernelsRefused(t *testing.T) {
	const second = "GPU-00000000-0000-0000-0000-000000000001"
	for name, test := range map[string]struct{ devices, want string }{
		"another UUID":  {"- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 16384}", "device 0 is GPU-0, want " + uuid},
		"MIG":           {"- {uuid: " + uuid + ", model: A100, sms: 108, memoryMiB: 16384, mig: []}", "MIG mode"},
		"unequal":       {"- {uuid: " + uuid + ", model: A100, sms: 108, memoryMiB: 16384}\n- {uuid: " + second + ", model: A100, sms: 108, memoryMiB: 8192}", "other memory"},
		"no such thing": {"- {uuid: 7}", "simulatedDevices"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "simulatedKernels: true")
			write(t, filepath.Join(m.dir, "devices.yaml"), "devices:\n"+test.devices+"\n")
			out, err := node("--standalone", "--config", m.config).CombinedOutput()
			if code := codeOf(t, err); code != 2 || !strings.Contains(string(out), test.want) {
				t.Errorf("code %d: %s", code, out)
			}
		})
	}
}
