package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// newTwoGPUs is a bench with two devices of 16 GiB.
func newTwoGPUs(t *testing.T) *bench {
	t.Helper()
	b := &bench{machine: newMachine(t), folder: built(t), devices: 2}
	second := strings.TrimSuffix(uuid, "0") + "1"
	text := "devices:\n"
	for _, id := range []string{uuid, second} {
		text += "- {uuid: " + id + ", model: A100, sms: 108, memoryMiB: 16384}\n"
	}
	write(t, filepath.Join(b.dir, "devices.yaml"), text)
	var err error
	if b.gpu, err = fakegpu.New(fakegpu.Config{Socket: filepath.Join(b.dir, "gpu"), Devices: 2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.gpu.Close() })
	return b
}

// inTurn returns functions that want all of the memory of a GPU each.
func inTurn(n int) (all []served) {
	for i := range n {
		all = append(all, served{fmt.Sprint("f", i), "sm: 50, memory: 16Gi", "--batch, 1=5ms", "maxReplicas: 1"})
	}
	return all
}

// patientFor is how long clients of the test wait: long enough for any server to start on a busy machine.
const patientFor = patience

// askWithin sends a request that is to be answered or refused within patientFor.
func (s *serving) askWithin(function string) (status int, reason string, err error) {
	r, err := http.NewRequest(http.MethodPost, s.url+"/", strings.NewReader("hello"))
	if err != nil {
		return 0, "", err
	}
	r.Host = function
	r.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", fmt.Sprint(patientFor.Milliseconds()))
	response, err := (&http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}).RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	return response.StatusCode, response.Header.Get("X-Gshare-Reason"), response.Body.Close()
}

// TestServeInTurn lets three functions, with -full six, have two GPUs in turn, with real processes, of which one after another is killed: all keep being
// answered, and the servers that run never want more than there is. Then gshare serve itself is killed, and goes on after another start.
func TestServeInTurn(t *testing.T) {
	b := newTwoGPUs(t)
	b.start(t)
	functions, each := inTurn(3), int64(2)
	if *full {
		functions, each = inTurn(6), 200
	}
	s := b.serveWith(t, []string{"--in-turn"}, functions...)
	var over atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() { b.watchMemory(t, &over) })
	answered := make([]atomic.Int64, len(functions))
	var killed atomic.Int64
	beside.Go(func() { b.killServers(answered, &killed, &over) })
	var others atomic.Int64 // refused, or failed since the server was killed twice
	var clients sync.WaitGroup
	for i, f := range functions {
		for range 2 {
			clients.Go(func() {
				for end := time.Now().Add(5 * patience); answered[i].Load() < each || killed.Load() == 0; {
					began := time.Now()
					status, reason, err := s.askWithin(f.name)
					switch {
					case err != nil || time.Since(began) > patientFor+patience/4:
						t.Errorf("%s: %v after %v", f.name, err, time.Since(began))
						return
					case status == http.StatusOK:
						answered[i].Add(1)
					default:
						t.Logf("%s: status %d, %s, after %v", f.name, status, reason, time.Since(began))
						others.Add(1)
					}
					if time.Now().After(end) {
						t.Errorf("%s has answered %d requests: %s", f.name, answered[i].Load(), s.text())
						return
					}
				}
			})
		}
	}
	clients.Wait()
	over.Store(true)
	beside.Wait()
	if others.Load() > 0 {
		t.Log(s.text())
	}
	loads := strings.Count(s.text(), "loading function")
	t.Logf("%d requests answered, %d not, %d loads, %d servers killed", int64(len(functions))*each, others.Load(), loads, killed.Load())
	if loads < 2*len(functions) && *full {
		t.Errorf("%d loads: the functions have hardly taken turns", loads)
	}
	s.end(syscall.SIGKILL)
	eventually(t, "nothing is left of the servers", func() bool { return len(b.mustStatus(t).Runs) == 0 })

	s = b.serveWith(t, []string{"--in-turn"}, functions...)
	for _, f := range functions {
		if status, _, err := s.askWithin(f.name); status != http.StatusOK || err != nil {
			t.Errorf("%s: status %d, %v: %s", f.name, status, err, s.text())
		}
	}
	if code := s.end(syscall.SIGTERM); code != 0 || !strings.Contains(s.text(), "refused=0 failed=0") {
		t.Errorf("code %d: %s", code, s.text())
	}
	eventually(t, "all shares are back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
}

// watchMemory holds that no device is promised to more than it has, and that each run has a device of its own.
func (b *bench) watchMemory(t *testing.T, over *atomic.Bool) {
	for ; !over.Load(); time.Sleep(5 * time.Millisecond) {
		status, err := b.status()
		if err != nil {
			continue
		}
		for _, d := range status.Devices {
			if d.Promised > d.Memory {
				t.Errorf("%d of the %d bytes of %s are promised", d.Promised, d.Memory, d.UUID)
			}
		}
		on := map[string]bool{}
		for _, r := range status.Runs {
			if v := r.VGPUs[0]; on[v.Device] || v.UsedMemory > 16384*share.MiB {
				t.Errorf("two runs on %s, or one with %d bytes: %+v", v.Device, v.UsedMemory, status.Runs)
			} else {
				on[v.Device] = true
			}
		}
	}
}

// killServers kills the processes of random runs: one after a request has been answered, the next one after another has, but at most one a second. On a
// busy machine servers take longer than a second to load.
func (b *bench) killServers(answered []atomic.Int64, killed *atomic.Int64, over *atomic.Bool) {
	for before := int64(0); !over.Load(); {
		now := int64(0)
		for i := range answered {
			now += answered[i].Load()
		}
		if now == before || !b.killServer() {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		before = now
		killed.Add(1)
		time.Sleep(time.Second)
	}
}

// killServer kills the process of a random run, and reports whether it has.
func (b *bench) killServer() bool {
	status, err := b.status()
	if err != nil || len(status.Runs) == 0 {
		return false
	}
	p, err := os.FindProcess(status.Runs[rand.IntN(len(status.Runs))].PID)
	return err == nil && p.Kill() == nil // not if it has ended
}
