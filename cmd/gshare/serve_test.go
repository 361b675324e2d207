package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// functionFile writes a file with a function whose command is the given YAML list.
func functionFile(t *testing.T, command string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "functions.yaml")
	text := "apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUFunction\nmetadata: {name: f}\nspec:\n  slo: {latency: 1s}\n" +
		"  template: {spec: {containers: [{command: " + command + "}]}}\n  resources: {share: {sm: 20, memory: 1Gi}}\n" +
		"  scaling: {minReplicas: 1, requestsPerSecond: 1}\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestServeBadInput checks that mistakes end gshare serve before it serves, with the place of the mistake.
func TestServeBadInput(t *testing.T) {
	m := newMachine(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := functionFile(t, `[sleep, "1000"]`)
	edited := func(old, changed string) string {
		text, err := os.ReadFile(good)
		if err != nil {
			t.Fatal(err)
		}
		return writeFile(t, "functions.yaml", strings.Replace(string(text), old, changed, 1))
	}
	for name, test := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"no file":         {nil, 2, []string{"an argument is missing"}},
		"missing file":    {[]string{"/nowhere.yaml"}, 2, []string{"/nowhere.yaml"}},
		"a directory":     {[]string{t.TempDir()}, 2, []string{"is a directory"}},
		"a field":         {[]string{functionFile(t, "[]")}, 2, []string{"functions.yaml: document 1: spec.template.spec.containers[0].command: is the program"}},
		"missing program": {[]string{functionFile(t, "[no-such-server]")}, 2, []string{"function f: spec.template.spec.containers[0].command[0]", "no-such-server"}},
		"no hook":         {[]string{good, "--hook", "/nowhere.so"}, 2, []string{"--hook", "/nowhere.so"}},
		"no agent":        {[]string{good, "--hook", m.hook, "--socket", "/nowhere/control.sock"}, 1, []string{"is gshare-node --standalone running?"}},
		"too much memory": {[]string{edited("1Gi", "1024Gi"), "--hook", m.hook}, 2, []string{"functions.yaml: function f: spec.resources.share.memory: 1024Gi are more than", "81920 MiB"}},
		"no unit":         {[]string{edited("1Gi", "'1024'"), "--hook", m.hook}, 2, []string{`memory: "1024" is less than 1Mi: add a unit`}},
		"bare number":     {[]string{edited("1Gi", "1024"), "--hook", m.hook}, 2, []string{"memory: 1024: want a string, not number: add its unit"}},
		"many GPUs":       {[]string{edited("sm: 20", "sm: 100, gpus: 2"), "--hook", m.hook}, 2, []string{"spec.resources.share.gpus: 2 are more than this machine has, 1"}},
		"an image":        {[]string{edited("command:", "image: server, command:"), "--hook", m.hook}, 2, []string{"containers[0].image: leave it out and name the program to start"}},
		"address":         {[]string{good, "--hook", m.hook, "--address", taken.Addr().String()}, 2, []string{"--address: ", "in use"}},
		"metrics address": {[]string{good, "--hook", m.hook, "--metrics-address", taken.Addr().String()}, 2, []string{"--metrics-address: ", "in use"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out := m.command(t, append([]string{"serve"}, test.args...)...)
			code := codeOf(t, cmd.Run())
			for _, want := range test.want {
				if code != test.code || !strings.Contains(out.String(), want) {
					t.Errorf("code %d, want %d; want %q: %s", code, test.code, want, out)
				}
			}
			if strings.Contains(out.String(), "create replica") {
				t.Errorf("it has started a replica: %s", out)
			}
		})
	}
}

// startServe starts gshare serve with a function whose command is the given YAML list, and returns it and what it has written so far.
func (m *machine) startServe(t *testing.T, command string) (*exec.Cmd, func() string) {
	t.Helper()
	cmd, _ := m.command(t, "serve", functionFile(t, command), "--hook", m.hook, "--address", "127.0.0.1:0")
	log := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, func() string { text, _ := os.ReadFile(log); return string(text) }
}

// stopServe ends gshare serve as Ctrl-C does.
func stopServe(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(t, cmd.Wait()); code != 0 {
		t.Errorf("code %d", code)
	}
}

// TestServeTellsOfFailures: whoever runs gshare serve learns what a replica has written and why it has ended.
func TestServeTellsOfFailures(t *testing.T) {
	m := newMachine(t)
	cmd, text := m.startServe(t, `[sh, -c, 'echo no such model >&2; exit 3']`)
	waitFor(t, func() bool { return strings.Contains(text(), "again in") })
	stopServe(t, cmd)
	for _, want := range []string{"\nf-1 | no such model\n", `msg="replica failed" replica=f-1 reason="exited with code 3: no such model"`, "msg=stopped function=default/f requests=0"} {
		if !strings.Contains(text(), want) {
			t.Errorf("no %q in %s", want, text())
		}
	}
}

// TestServeNeverListens: a replica that never listens is ended when its time is over. A request that waits for it is refused with the reason then,
// and so is one that comes afterwards; the log has it, too.
func TestServeNeverListens(t *testing.T) {
	m := newMachine(t)
	cmd, text := m.startServe(t, `[sh, -c, 'echo loading; sleep 1000'], startupProbe: {periodSeconds: 1, failureThreshold: 2}`)
	address := regexp.MustCompile(`msg=serving address=(\S+)`)
	waitFor(t, func() bool { return address.MatchString(text()) })
	reason := regexp.MustCompile(`^{"error":"no replica serves the function: f-1: (not ready within 2s, waited for port \d+(?:; last line: loading)?)"}$`)
	var told []string
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, "http://"+address.FindStringSubmatch(text())[1]+"/", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "f"
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		m := reason.FindStringSubmatch(string(body))
		if err != nil || response.StatusCode != 503 || response.Header.Get("X-Gshare-Reason") != "backing-off" || m == nil {
			t.Fatalf("%d, %v, %s, %v", response.StatusCode, response.Header, body, err)
		}
		told = append(told, m[1])
		if after, err := strconv.Atoi(response.Header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
			t.Errorf("try again after %d, %v", after, err)
		}
	}
	// A busy machine may not start sh within the 2 s. Sooner or later the line is written in time.
	last := regexp.MustCompile(`msg="replica failed" replica=f-1 reason="not ready within 2s, waited for port \d+; last line: loading" "again in"=`)
	waitFor(t, func() bool { return last.MatchString(text()) })
	stopServe(t, cmd)
	failed := regexp.MustCompile(`msg="replica failed" replica=f-1 reason="not ready within 2s, waited for port \d+(; last line: loading)?" "again in"=1s`)
	if !failed.MatchString(text()) || !strings.Contains(text(), "requests=2 answered=0 \"in time\"=0 refused=2 ") {
		t.Errorf("%s", text())
	}
	for _, reason := range told {
		if !strings.Contains(text(), fmt.Sprintf("reason=%q", reason)) {
			t.Errorf("a request was told %q, the log: %s", reason, text())
		}
	}
}

func TestFunctionTable(t *testing.T) {
	s := share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 400, QuotaLimit: 800}
	text := functionTable([]fleet.Status{
		{
			Name: gateway.FunctionName{Namespace: "default", Name: "resnet50"}, SLO: 69 * time.Millisecond, P99: 61234567, Hit: 0.994, Rate: 212.34,
			Replicas: map[string]int{"ready": 3, "draining": 1}, Share: s, Ready: true, Reason: "Serving",
		},
		{
			Name: gateway.FunctionName{Namespace: "text", Name: "bert"}, SLO: time.Second, Hit: math.NaN(), Replicas: map[string]int{"failed": 1}, Share: s,
			Reason: "Failing", Message: "text/bert-1: exited with code 3: no such model",
		},
	}, 100)
	want := "NAME       SLO   P99     HIT    RPS  REPLICAS  SHARE          READY  REASON\n" +
		"resnet50   69ms  61.2ms  99.4%  212  3/4       24% x 40%-80%  True   Serving\n" +
		"text/bert  1s    -       -      0    0/1       24% x 40%-80%  False  Failing: text/bert-1: exited wi\n"
	if text != want {
		t.Errorf("\n%s, want\n%s", text, want)
	}
}

// TestScreen checks that the table stays below the log, and that it is gone at the end.
func TestScreen(t *testing.T) {
	var terminal bytes.Buffer
	s := &screen{log: &terminal, table: &terminal, same: true, text: "A\nB\n", stop: func() {}}
	for _, line := range []string{"one\n", "two\n"} {
		if n, err := fmt.Fprint(s, line); n != 4 || err != nil {
			t.Error(n, err)
		}
	}
	s.end()
	fmt.Fprint(s, "three\n")
	if got, want := terminal.String(), "one\nA\nB\n\x1b[2A\x1b[Jtwo\nA\nB\n\x1b[2A\x1b[Jthree\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestExampleFunctions: the file of the documents is valid.
func TestExampleFunctions(t *testing.T) {
	text, err := os.ReadFile("../../docs/functions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	functions, err := api.Decode(text)
	if err != nil || len(functions) != 2 {
		t.Errorf("%d functions, %v", len(functions), err)
	}
}
