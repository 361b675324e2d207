package machine

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
)

// await waits for a message about an instance that is not ready which matches the expression, and returns the match of the last group.
func (w *world) await(expression string) string {
	w.t.Helper()
	for re := regexp.MustCompile(expression); ; {
		if m := re.FindStringSubmatch(w.next(fleet.Starting).Message); m != nil {
			return m[len(m)-1]
		}
	}
}

// TestNeverListens: an instance that does not listen reports what it waits for, and fails when its time is over, with its last line of
// output. All processes that it has started end, too.
func TestNeverListens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/bin/sh", "-c", `while [ "$1" != -- ]; do shift; done; shift; sleep 1000 & echo $!; exec "$@"`) // before the time to start begins
	w.create("f-1", `{command: [sleep, "1000"], startupProbe: {periodSeconds: 1, failureThreshold: 2}}`, 30)
	child := w.await(`^waits for port \d+; last line: (\d+)$`)
	e := w.next(fleet.Failed)
	if !regexp.MustCompile(`^not ready within 2s, waited for port \d+; last line: ` + child + `$`).MatchString(e.Message) {
		t.Errorf("%+v", e)
	}
	awaitEnd(t, child)
}

// ignoring runs programs that ignore SIGTERM from their start on.
var ignoring = []string{"/bin/sh", "-c", `trap "" TERM; while [ "$1" != -- ]; do shift; done; shift; exec "$@"`}

// TestStubbornStart: an instance that is not ready in time and ignores SIGTERM gets SIGKILL.
func TestStubbornStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ignoring...)
	w.create("f-1", `{command: [sleep, "1000"], startupProbe: {periodSeconds: 1, failureThreshold: 1}}`, 1)
	w.await(`^not ready within 1s, waited for port \d+; is being ended$`)
	if e := w.next(fleet.Failed); !strings.HasPrefix(e.Message, "not ready within 1s") {
		t.Errorf("%+v", e)
	}
}

// TestDeleteOfLate: an instance that is deleted while it is already being ended counts as gone, not as failed.
func TestDeleteOfLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ignoring...)
	w.create("f-1", `{command: [sleep, "1000"], startupProbe: {periodSeconds: 1, failureThreshold: 1}}`, 3600) // so that Delete comes before SIGKILL
	w.await(`is being ended$`)
	w.Delete("f-1")
	w.Kill()
	w.next(fleet.Gone)
}

// TestProbes: first the startup probe has to succeed, and then the readiness probe. Each awaited status is reported.
func TestProbes(t *testing.T) { // not parallel: parallel tests need their ports to be closed
	w := newWorld(t)
	started := filepath.Join(t.TempDir(), "started")
	w.create("f-1", `{command: ["`+os.Args[0]+`"], env: [{name: `+asServer+`, value: "1"}, {name: `+startedFile+`, value: `+started+`}], startupProbe: {httpGet: {path: "/ready?x=1"}}, readinessProbe: {httpGet: {path: /live}}}`, 30)
	w.await("^waits for GET /ready.x=1: 503")
	if err := os.WriteFile(started, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.await("^waits for GET /live: 503")
	w.Delete("f-1")
	w.next(fleet.Gone)
}

// TestWaitForShare: the time for which an instance waits for its share does not count as part of its start, and the reported reason is that
// of gshare run.
func TestWaitForShare(t *testing.T) {
	t.Parallel()
	granted := t.TempDir() + "/granted"
	w := newWorld(t, "/bin/sh", "-c", `while [ "$1" != -- ]; do shift; done; shift; echo "gshare: waiting: no room"; while ! [ -e `+granted+` ]; do sleep 0.01; done; exec "$@"`)
	w.create("f-1", `{command: [sleep, "1000"], startupProbe: {periodSeconds: 1, failureThreshold: 1}}`, 30)
	for _, message := range []string{"waits for its share of a GPU", "gshare: waiting: no room"} {
		if e := w.next(fleet.Starting); e.Message != message || !e.Queued {
			t.Errorf("%+v, want %q, queued", e, message)
		}
	}
	select {
	case e := <-w.Events():
		t.Fatalf("%+v", e)
	case <-time.After(1500 * time.Millisecond): // longer than the time to start
	}
	if err := os.WriteFile(granted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := w.next(fleet.Starting)
	for ; e.Message == "waits for its share of a GPU"; e = w.next(fleet.Starting) { // the line of gshare run is dropped once the program runs
	}
	if !strings.HasPrefix(e.Message, "waits for port") || e.Queued {
		t.Errorf("%+v", e)
	}
	if e := w.next(fleet.Failed); strings.Contains(e.Message, "no room") {
		t.Errorf("%+v", e)
	}
}

// TestExecutes: executes does not take a process that was just started for one that executes another program, and later does.
func TestExecutes(t *testing.T) {
	t.Parallel()
	for range 100 { // for a moment during each start the kernel shows no command line
		cmd := exec.Command("/bin/sh", "-c", "read go && exec sleep 1000")
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		early := executes(cmd.Process.Pid, cmd.Args)
		if _, err := fmt.Fprintln(input, "go"); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); !executes(cmd.Process.Pid, cmd.Args); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it never counts")
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if early {
			t.Fatal("it counts before it executes another program")
		}
	}
}

// TestInitialDelay: no probe is made before the delay has passed.
func TestInitialDelay(t *testing.T) { // not parallel: parallel tests need their ports to be closed
	w := newWorld(t)
	begin := time.Now()
	w.create("f-1", `{command: ["`+os.Args[0]+`"], env: [{name: `+asServer+`, value: "1"}], startupProbe: {initialDelaySeconds: 1}}`, 30)
	w.await("^waits for its initial delay of 1s")
	w.next(fleet.Ready)
	if took := time.Since(begin); took < time.Second {
		t.Errorf("ready after %v", took)
	}
	w.Delete("f-1")
	w.next(fleet.Gone)
}

// TestChecks: which probes a container has, and how long each may take.
func TestChecks(t *testing.T) {
	t.Parallel()
	for container, want := range map[string][]check{
		"": {{limit: startLimit, timeout: time.Second}},
		"readinessProbe: {httpGet: {path: /ready}}": {{path: "/ready", limit: startLimit, timeout: time.Second}},
		"startupProbe: {}":                          {{limit: 30 * time.Second, timeout: time.Second}},
		"startupProbe: {httpGet: {path: /live}, failureThreshold: 60, initialDelaySeconds: 5, timeoutSeconds: 3}": {{"/live", 5 * time.Second, 10 * time.Minute, 3 * time.Second}},
		"startupProbe: {periodSeconds: 1}, readinessProbe: {httpGet: {path: /ready}}":                             {{limit: 3 * time.Second, timeout: time.Second}, {path: "/ready", limit: startLimit, timeout: time.Second}},
	} {
		t.Run(container, func(t *testing.T) {
			functions, err := api.Decode([]byte("apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUFunction\nmetadata: {name: f}\nspec:\n  slo: {latency: 1s}\n" +
				"  scaling: {requestsPerSecond: 1}\n  resources: {share: {sm: 24, memory: 1525Mi}}\n  template: {spec: {containers: [{command: [x], " + container + "}]}}\n"))
			if err != nil {
				t.Fatal(err)
			}
			if got := checksOf(functions[0].Container()); !slices.Equal(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// TestTry: what a probe reports of each kind of answer.
func TestTry(t *testing.T) { // not parallel: parallel tests need their ports to be closed
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			<-r.Context().Done()
		case "/hostile":
			c, _, _ := w.(http.Hijacker).Hijack()
			fmt.Fprintf(c, "HTTP/1.1 \x1b[2J%s\r\n\r\n", strings.Repeat("x", 1000))
			c.Close()
		case "/away":
			http.Redirect(w, r, "/missing", http.StatusFound)
		case "/missing":
			http.NotFound(w, r)
		}
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	open := server.Listener.Addr().(*net.TCPAddr).Port
	const closed = 1 // nothing listens there
	for name, test := range map[string]struct {
		path string
		port int
		want string
	}{
		"a port": {"", open, "<nil>"}, "no port": {"", closed, "connection refused"}, "a page": {"/", open, "<nil>"}, "no page": {"/missing", open, "404"},
		"a redirect": {"/away", open, "<nil>"}, "no server": {"/", closed, "connection refused"}, "no answer": {"/hangs", open, "no answer within 100ms"},
		"no HTTP": {"/hostile", open, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := time.Minute
			if test.path == "/hangs" {
				timeout = 100 * time.Millisecond
			}
			err := check{path: test.path, timeout: timeout}.try(t.Context(), test.port)
			if got := fmt.Sprint(err); !strings.Contains(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
			if err != nil {
				if text := clean(err.Error()); len(text) > maxError || strings.ContainsAny(text, "\x1b\n") {
					t.Errorf("%q", text)
				}
			}
		})
	}
}
