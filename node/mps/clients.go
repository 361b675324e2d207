package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/node/enforcement"
)

// pipeName is the name of the pipe through which clients connect to a daemon.
const pipeName = "control"

// publishPipe makes the daemon's pipe available in the directory for its clients, unless its clients use the directories of namespaces. A
// link to this pipe leads to the same daemon, but not to the pipe beside it that accepts commands from root.
func (c control) publishPipe() error {
	if !c.hasPipe() {
		return errors.New("the pipe of the daemon is missing")
	}
	if c.isVersion3 {
		return nil
	}
	pipe, public := filepath.Join(c.PipeDir(c.slice), pipeName), filepath.Join(c.ClientDir(c.slice), pipeName)
	before, err := os.Lstat(pipe)
	if err != nil {
		return err
	}
	if now, err := os.Lstat(public); err == nil && os.SameFile(before, now) {
		return nil
	}
	next := public + ".next"
	if err := errors.Join(os.MkdirAll(c.ClientDir(c.slice), 0o755), ignoreNotExist(os.Remove(next))); err != nil {
		return err
	}
	if err := os.Link(pipe, next); err != nil {
		return fmt.Errorf("link the pipe for clients: %w", err)
	}
	return os.Rename(next, public)
}

// Limitations of MPS daemons, as enforcement statuses show them.
const (
	SingleUser    = enforcement.MPSDaemon + "serves the processes of one user at a time: the driver is older than 555"
	FaultsUnknown = enforcement.MPSDaemon + "does not report faults: the driver is older than 550"
	Commandable   = enforcement.MPSDaemon + "takes commands from its clients: uid 0 of a container can end the work of all"
)

// Limitations returns what the MPS daemon of a slice cannot do, for the enforcement statuses of the slice's shares.
func (m *Manager) Limitations(slice string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.daemons[slice]; d != nil {
		return d.limitations
	}
	return nil
}

// inspect finds the limitations of the daemon, once for each process that runs as this daemon.
func (d *daemon) inspect() {
	if d.pid == 0 || d.limitations != nil {
		return
	}
	found, err := d.control.findLimitations(d.manager.ctx, d.pid)
	if err != nil {
		return // the next observation tries again
	}
	for _, text := range found {
		d.manager.Log.Warn("MPS daemon is limited", "slice", d.slice, "limitation", text)
	}
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	d.limitations, d.unpublished = found, d.unpublished || len(found) > 0
}

// findLimitations returns the limitations of the daemon with a PID. If err is nil, found is not nil.
func (c control) findLimitations(ctx context.Context, pid int) (found []string, err error) {
	found = []string{}
	if os.Geteuid() == 0 && !hasArguments(pid, c.multiUserFlag()) {
		found = append(found, SingleUser)
	}
	if c.isVersion3 {
		return found, nil
	}
	answer, err := c.commandV2(ctx, "get_server_status")
	if strings.HasPrefix(answer, "Unknown command") {
		found = append(found, FaultsUnknown)
	}
	if c.takesClientCommands(ctx) {
		found = append(found, Commandable)
	}
	return found, err
}

// takesClientCommands reports whether the daemon executes commands that arrive through the pipe for clients. It tries several times, since a
// daemon that is serving another session refuses commands, too.
func (c control) takesClientCommands(ctx context.Context) bool {
	for range 3 {
		if _, err := c.tryCommandV2(ctx, c.ClientDir(c.slice), "get_server_list"); err == nil {
			return true
		}
		time.Sleep(busyDelay)
	}
	return false
}
