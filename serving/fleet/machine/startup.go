package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
)

// probePeriod is the time between two probes. The kubelet probes pods less often; here requests are waiting for the first probe that succeeds.
const probePeriod = 50 * time.Millisecond

// Defaults for functions that do not set them: how long a replica may take to start, and how long one probe may take.
const (
	startLimit   = 10 * time.Minute
	probeTimeout = time.Second
)

// check is a probe that has to succeed before a process gets requests.
type check struct {
	path    string        // path of a GET request; if empty, the port has to accept a connection
	delay   time.Duration // time before the first try
	limit   time.Duration // time after the delay within which it has to succeed
	timeout time.Duration // time that one try may take
}

// checksOf returns the checks of a container, in order.
func checksOf(c *v1.Container) []check {
	var checks []check
	if p := c.StartupProbe; p != nil {
		started := check{delay: seconds(p.InitialDelaySeconds), limit: api.StartLimit(p), timeout: seconds(p.TimeoutSeconds)}
		if p.HTTPGet != nil {
			started.path = p.HTTPGet.Path
		}
		checks = append(checks, started)
	}
	switch p := c.ReadinessProbe; {
	case p != nil:
		checks = append(checks, check{path: p.HTTPGet.Path, limit: startLimit, timeout: probeTimeout})
	case checks == nil:
		checks = append(checks, check{limit: startLimit, timeout: probeTimeout})
	}
	return checks
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// target describes what the check asks of a port.
func (c check) target(port int) string {
	if c.path == "" {
		return "port " + strconv.Itoa(port)
	}
	return "GET " + c.path
}

// try returns nil if the check succeeds, or else the status or error to show. It does not follow redirects.
func (c check) try(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	address := net.JoinHostPort(loopback, strconv.Itoa(port))
	if c.path == "" {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return c.simplify(err)
		}
		return connection.Close()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+c.path, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return c.simplify(err)
	}
	response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return errors.New(strconv.Itoa(response.StatusCode))
	}
	return nil
}

// simplify removes from an error what a reader already knows, such as the address.
func (c check) simplify(err error) error {
	if number := syscall.Errno(0); errors.As(err, &number) {
		return number
	}
	if timeout := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no answer within %v", c.timeout)
	}
	return err
}

// start waits until the process passes its checks, reports what it waits for and that it is ready, and then watches whether it stays so. The time for
// which a process waits for its share does not count. A process that does not pass a check in time is ended.
func (p *process) start(ctx context.Context, pid int, command []string) {
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	next := func() bool {
		select {
		case <-ticker.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for !executes(pid, command) {
		if !next() {
			return
		}
	}
	p.progress.forget(starterPrefix)
	checks := checksOf(p.Function.Container())
	if p.machine.Unprobed {
		checks = nil
	}
	for _, c := range checks {
		if !p.pass(ctx, c, next) {
			return
		}
	}
	p.progress.end()
	p.ready()
	if probe := p.Function.Container().ReadinessProbe; probe != nil && !p.machine.Unprobed {
		p.watch(ctx, check{path: probe.HTTPGet.Path, timeout: watchTimeout})
	}
}

func (p *process) ready() {
	p.send(fleet.Event{Kind: fleet.Ready, Address: net.JoinHostPort(loopback, strconv.Itoa(p.port))})
}

// A process that is ready is probed every watchPeriod, and gets no requests from the watchFailures-th failure in a row until a success. So a server that
// says that it is not ready is believed within seconds, while one that is too busy to answer has the 30 s that the kubelet gives it by default.
const (
	watchPeriod   = time.Second
	watchTimeout  = 10 * time.Second
	watchFailures = 3
)

// watch probes a process that is ready, and reports when it no longer is and when it is again.
func (p *process) watch(ctx context.Context, c check) {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	for failures := 0; ; {
		select {
		case <-ticker.C:
		case <-p.deleted: // it may say that it is not ready any more while it answers its last requests
			return
		case <-ctx.Done():
			return
		}
		err := c.try(ctx, p.port)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures++; failures == watchFailures {
				p.send(fleet.Event{Kind: fleet.Starting, Message: "waits for " + c.target(p.port) + ": " + clean(err.Error())})
			}
			continue
		case failures >= watchFailures:
			p.ready()
		}
		failures = 0
	}
}

// starterPrefix is how lines of gshare run itself begin, which say nothing about the program that it starts.
const starterPrefix = "gshare: "

// executes reports whether a process that was started with a command now executes another program, as gshare run does when it has got the share. For
// a moment during each execve(2), including the one that starts the process, the kernel shows an empty command line.
func executes(pid int, command []string) bool {
	now, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err != nil || len(now) > 0 && !bytes.Equal(now, []byte(strings.Join(command, "\x00")+"\x00"))
}

// pass tries a check until it succeeds. It returns false when the check's time is over or next returns false.
func (p *process) pass(ctx context.Context, c check, next func() bool) bool {
	target := c.target(p.port)
	begin := time.Now().Add(c.delay)
	if c.delay > 0 {
		p.progress.wait(fmt.Sprintf("waits for its initial delay of %v", c.delay))
	}
	for time.Now().Before(begin) {
		if !next() {
			return false
		}
	}
	p.progress.wait("waits for " + target)
	end := begin.Add(c.limit)
	limited, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	waited := target
	for {
		err := c.try(limited, p.port)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case !time.Now().Before(end): // the deadline may have cut off the last try
			p.overdue = fmt.Sprintf("not ready within %v, waited for %s", c.limit, waited)
			p.progress.wait(p.overdue + "; is being ended")
			close(p.late)
			return false
		case c.path != "" || !errors.Is(err, syscall.ECONNREFUSED): // a refused connection is expected while nobody listens on the port yet
			waited = target + ": " + clean(err.Error())
		default:
			waited = target
		}
		p.progress.wait("waits for " + waited)
		if !next() {
			return false
		}
	}
}

// maxError is the length in bytes to which errors are cut.
const maxError = 256

// clean cuts a text and removes control characters, which could move the cursor of a terminal.
func clean(text string) string {
	return strings.Map(printable, text[:min(len(text), maxError)])
}
