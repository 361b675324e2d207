package soak_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/executable"
)

// process is the controller's process.
type process struct {
	command *exec.Cmd
	log     string
	metrics string // host:port
	pprof   string
	ended   chan error
}

// startController builds gshare-controller, and runs it in the same way as a pod of a cluster does.
func startController(t *testing.T, log, kubeconfig, token string) *process {
	t.Helper()
	path := *program
	if path == "" {
		path = filepath.Join(filepath.Dir(log), "gshare-controller")
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/gshare-controller").CombinedOutput(); err != nil {
			t.Fatalf("build gshare-controller: %v\n%s", err, out)
		}
	}
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := &process{log: log, metrics: freeAddress(t), pprof: freeAddress(t), ended: make(chan error, 1)}
	p.command = exec.Command(path, "--kubeconfig", kubeconfig, "--token", token, "--metrics", p.metrics, "--pprof", p.pprof, "--health", "0", "--keda", "0", fmt.Sprintf("--leader-elect=%t", *elect && *functionCount >= many)) // a short run has to work on a busy machine
	p.command.Stdout, p.command.Stderr = file, file
	p.command.Env = append(os.Environ(), "GOGC=", "GOMEMLIMIT=1400MiB") // as in manifests/serving/controller.yaml, whatever the test's own environment has
	if err := executable.Start(p.command); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		p.ended <- p.command.Wait()
		close(stopped)
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill() // fails only if the process has already ended
		<-stopped
		if t.Failed() {
			t.Logf("end of the controller's log:\n%s", p.tail())
		}
	})
	return p
}

func (p *process) tail() []byte { return executable.LogTail(p.log) }

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.2:0") // no outgoing connection takes its port until it is used: those come from 127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// clockTick is the unit of processor times in /proc, USER_HZ, which is 100 Hz on all platforms.
const clockTick = 10 * time.Millisecond

// processor returns the user and system time that the controller has used.
func (p *process) processor() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := bytes.Cut(text, []byte(") ")) // the name of the program, in parentheses, may contain spaces
	fields := strings.Fields(string(after))
	if len(fields) < 13 {
		return 0, fmt.Errorf("malformed: %s", text)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, err
}

// memory returns the controller's resident memory in bytes.
func (p *process) memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("malformed: %s", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// scrape returns the controller's metrics whose names, including labels, begin with one of the prefixes.
func (p *process) scrape(ctx context.Context, prefixes ...string) (map[string]float64, error) {
	body, err := get(ctx, "http://"+p.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(body, prefixes...)
}

func parseMetrics(text []byte, prefixes ...string) (map[string]float64, error) {
	found := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		for _, prefix := range prefixes {
			if !strings.HasPrefix(line, prefix) {
				continue
			}
			at := strings.LastIndexByte(line, ' ')
			value, err := strconv.ParseFloat(line[at+1:], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
			found[line[:at]] = value
		}
	}
	return found, nil
}

// profile writes one of the controller's profiles to a file.
func (p *process) profile(ctx context.Context, path, file string) error {
	body, err := get(ctx, "http://"+p.pprof+"/debug/pprof/"+path)
	if err != nil {
		return err
	}
	return os.WriteFile(file, body, 0o600)
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return body, err
}
