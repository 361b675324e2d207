package machine

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
)

const (
	asServer    = "MACHINE_TEST_SERVER"  // set: this binary is a server
	startedFile = "MACHINE_TEST_STARTED" // if set, the server has started once the file of this name exists
	deadFiles   = "MACHINE_TEST_DEAD"    // if set, a directory: while it has a file named as the server's port, the engine of the server is dead
)

// TestMain lets the test binary also be a server that exits with code 0 on SIGTERM.
func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" {
		loopback = "127.0.0.3"
		os.Exit(m.Run())
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := os.Stat(cmp.Or(os.Getenv(startedFile), "/"))
		_, alive := os.Stat(filepath.Join(cmp.Or(os.Getenv(deadFiles), "/none"), os.Getenv("PORT")))
		switch {
		case r.Method == http.MethodPost: // as vLLM with a dead engine
			w.Header().Set("Server-Port", os.Getenv("PORT"))
			w.WriteHeader(map[bool]int{true: 500, false: 200}[alive == nil])
		case err != nil || alive == nil || r.URL.String() != "/ready?x=1":
			w.WriteHeader(503)
		}
	}))
	fmt.Println("listening, flags", os.Args[1:])
	<-stop
	fmt.Println("stopped")
	os.Exit(0)
}

// world is a Machine without an agent that grants shares, with the functions to run on it.
type world struct {
	*Machine
	t  *testing.T
	mu sync.Mutex
	// output is what the instances have written.
	output []string
}

// newWorld returns a Machine that starts programs with `run`, or directly.
func newWorld(t *testing.T, run ...string) *world {
	w := &world{t: t}
	if run == nil { // skips the flags of the share
		run = []string{"/bin/sh", "-c", `while [ "$1" != -- ]; do shift; done; shift; exec "$@"`}
	}
	w.Machine = New(run, func(instance, line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.output = append(w.output, instance+" | "+line)
	})
	return w
}

// create starts an instance of a function with one container.
func (w *world) create(name, container string, grace int) {
	w.t.Helper()
	functions, err := api.Decode([]byte(fmt.Sprintf("apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUFunction\nmetadata: {name: f}\nspec:\n"+
		"  slo: {latency: 1s}\n  scaling: {requestsPerSecond: 1}\n  resources: {share: {sm: 24, quota: 40, quotaLimit: 80, memory: 1525Mi}}\n"+
		"  template: {spec: {terminationGracePeriodSeconds: %d, containers: [%s]}}\n", grace, container)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.Create(fleet.Instance{Name: name, Function: functions[0], Share: functions[0].Share()})
}

// next returns the next event of a kind.
func (w *world) next(kind fleet.EventKind) fleet.Event {
	w.t.Helper()
	for {
		select {
		case e := <-w.Events():
			if e.Kind == kind {
				return e
			}
			if e.Kind != fleet.Starting {
				w.t.Fatalf("%+v, want %s; output %q", e, kind, w.output)
			}
		case <-time.After(time.Minute):
			w.t.Fatalf("no %s; output %q", kind, w.output)
		}
	}
}

// written waits for the next line that an instance writes, and returns it.
func (w *world) written() string {
	w.t.Helper()
	for {
		w.next(fleet.Starting)
		w.mu.Lock()
		output := w.output
		w.mu.Unlock()
		if len(output) > 0 {
			_, line, _ := strings.Cut(output[0], " | ")
			return line
		}
	}
}

// TestServer starts a server, waits until its probe succeeds, and ends it with SIGTERM.
func TestServer(t *testing.T) {
	w := newWorld(t)
	w.create("f-1", `{command: ["`+os.Args[0]+`"], args: [a b], env: [{name: `+asServer+`, value: "1"}], readinessProbe: {httpGet: {path: "/ready?x=1"}}}`, 30)
	ready := w.next(fleet.Ready)
	response, err := http.Get("http://" + ready.Address + "/ready?x=1")
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	w.Delete("f-1")
	w.Delete("f-1")
	if e := w.next(fleet.Gone); e.Instance != "f-1" || e.Message != "exited with code 0: stopped" {
		t.Errorf("%+v", e)
	}
	w.Delete("f-1")
	if got := strings.Join(w.output, "; "); got != "f-1 | listening, flags [a b]; f-1 | stopped" {
		t.Errorf("output %q", got)
	}
}

// TestConnection: without a probe, an instance is ready once it accepts connections.
func TestConnection(t *testing.T) {
	w := newWorld(t)
	w.create("f-1", `{command: ["`+os.Args[0]+`"], env: [{name: `+asServer+`, value: "1"}]}`, 30)
	w.next(fleet.Ready)
	w.Delete("f-1")
	w.next(fleet.Gone)
}

// TestFailures: an instance that ends by itself has failed, and the event says why.
func TestFailures(t *testing.T) {
	for container, want := range map[string]string{
		`{command: [sh, -c, 'echo one; printf "out of \033memory" >&2; exit 7']}`: "exited with code 7: out of memory",
		`{command: [sh, -c, 'kill -9 $$']}`:                                       "signal: killed",
		`{command: [/nowhere/server]}`:                                            "/nowhere/server",
		`{command: ["true"]}`:                                                     "exited with code 0",
	} {
		w := newWorld(t)
		w.create("f-1", container, 30)
		if e := w.next(fleet.Failed); !strings.Contains(e.Message, want) {
			t.Errorf("%s: %+v", container, e)
		}
	}
	w := newWorld(t, "/nowhere/gshare", "run")
	w.create("f-1", `{command: ["true"]}`, 30)
	if e := w.next(fleet.Failed); !strings.Contains(e.Message, "/nowhere/gshare") {
		t.Errorf("%+v", e)
	}
}

// TestShare checks that the function's share is passed to gshare run.
func TestShare(t *testing.T) {
	w := newWorld(t, "echo", "run", "--socket", "s")
	w.create("vision/f-1", `{command: [serve], args: [-x]}`, 30)
	want := "exited with code 0: run --socket s --name f-1 --class slo --wait --quota 40 --quota-limit 80 --vgpu 1 --sm 24 --mem 1525Mi -- serve -x"
	if e := w.next(fleet.Failed); e.Message != want {
		t.Errorf("%q, want %q", e.Message, want)
	}
	for n, test := range []struct{ share, want string }{
		{"{sm: 24, smLimit: 48, memory: 1Gi}", "--sm-limit 48"},
		{"{sm: 100, memory: 1Gi, gpus: 2}", "--vgpu 2 --sm 200 --mem 2048Mi"}, // the sums of their SMs and memory
	} {
		f, err := api.Decode([]byte("apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUFunction\nmetadata: {name: f}\nspec:\n  slo: {latency: 1s}\n" +
			"  scaling: {requestsPerSecond: 1}\n  resources: {share: " + test.share + "}\n  template: {spec: {containers: [{command: [serve]}]}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		w.Create(fleet.Instance{Name: fmt.Sprint("g-", n), Function: f[0], Share: f[0].Share()})
		if e := w.next(fleet.Failed); !strings.Contains(e.Message, test.want) {
			t.Errorf("%q, want %s", e.Message, test.want)
		}
	}
}

// TestStubborn: an instance that ignores SIGTERM is killed after its grace period, together with all processes that it has
// started.
func TestStubborn(t *testing.T) {
	w := newWorld(t)
	w.create("f-1", `{command: [sh, -c, 'trap "" TERM; sleep 1000 & echo $!; while :; do sleep 1000; done']}`, 1)
	child := w.written()
	begin := time.Now()
	w.Delete("f-1")
	if e := w.next(fleet.Gone); !strings.HasPrefix(e.Message, "signal: killed") || time.Since(begin) < time.Second {
		t.Errorf("%+v after %v", e, time.Since(begin))
	}
	awaitEnd(t, child)
}

// TestKill: Kill ends at once what is running and what is created later.
func TestKill(t *testing.T) {
	w := newWorld(t)
	w.create("f-1", `{command: [sh, -c, 'trap "" TERM; echo started; while :; do sleep 1000; done']}`, 3600)
	w.written()
	w.Delete("f-1")
	w.Kill()
	w.next(fleet.Gone)
	w.create("f-2", `{command: [sleep, "1000"]}`, 3600)
	w.next(fleet.Failed)
}

// TestOrphans: processes that an instance has started end together with it.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	w.create("f-1", `{command: [sh, -c, 'sleep 1000 & echo $!']}`, 30)
	e := w.next(fleet.Failed)
	awaitEnd(t, strings.TrimPrefix(e.Message, "exited with code 0: "))
}

// awaitEnd waits until a process has ended, whether or not its parent has reaped it.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %s lives: %s", pid, text)
		}
	}
}

// TestManyTimes repeatedly starts and ends instances, and checks that no process, goroutine or descriptor is left.
func TestManyTimes(t *testing.T) {
	w := newWorld(t)
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	cycle := func() {
		for i := range 5 {
			w.create(fmt.Sprintf("f-%d", i), `{command: [sleep, "1000"]}`, 30)
			w.Delete(fmt.Sprintf("f-%d", i))
		}
		for range 5 {
			w.next(fleet.Gone)
		}
	}
	cycle()
	before := descriptors()
	for range 10 {
		cycle()
	}
	if after := descriptors(); after > before+3 {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if out, err := exec.Command("pgrep", "-P", strconv.Itoa(os.Getpid()), "sleep").Output(); err == nil {
		t.Errorf("left: %s", out)
	}
	if len(w.processes) > 0 {
		t.Errorf("%v is left", w.processes)
	}
}
