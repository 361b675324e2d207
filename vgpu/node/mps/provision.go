package mps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// nextIsVersion3 reports whether the next daemon is started with MPS v3, for its namespaces: where the driver supports them and the
// configuration allows them, but not in MIG instances, for which NVIDIA does not promise them. While the slice has members, the next
// daemon has the version of the last one, because containers keep the pipe directories that they were given.
func (d *daemon) nextIsVersion3(ctx context.Context) (bool, error) {
	switch {
	case d.hasMembers():
		return d.recordedVersion3(), nil
	case d.NoNamespaces || strings.HasPrefix(d.slice, "MIG-"):
		return false, nil
	}
	return d.supportsNamespaces(ctx)
}

func (d *daemon) hasMembers() bool {
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	return len(d.manager.members[d.slice]) > 0
}

// canProvision reports whether namespaces can be created now: the daemon has them, is needed and is well.
func (d *daemon) canProvision(observation supervisor.Observation) bool {
	return d.isVersion3 && observation.Wanted && observation.Daemon == supervisor.Answers && !observation.Fault
}

// provision creates the server and the namespaces of the members, and deletes all others, including those of an earlier agent. It returns
// why the slice has to be closed to all members, or an empty string. A server that has ended disappears from the daemon's list with
// its namespaces, and clients that connected then would run without MPS.
func (d *daemon) provision() (closed string) {
	ctx := d.manager.ctx
	if !d.hasServer {
		d.setNamespaces(nil)
		if _, err := d.commandV3(ctx, "server", "create", serverName, "--allowed-devices="+d.slice); err != nil {
			return "failed to create the MPS server: " + err.Error()
		}
	}
	existing, err := d.listNamespaces(ctx)
	if err != nil {
		return "failed to list the MPS namespaces: " + err.Error()
	}
	namespaces := d.createNamespaces(ctx, existing)
	d.setNamespaces(namespaces)
	for _, name := range existing {
		if _, wanted := namespaces[name]; !wanted && name != "default" {
			d.deleteNamespace(ctx, name)
		}
	}
	return ""
}

// createNamespaces creates the namespaces of the members and sets their limits. Each agent sets the limits of an existing namespace once:
// an agent that was killed may have set none.
func (d *daemon) createNamespaces(ctx context.Context, existing []string) map[string]namespace {
	namespaces := map[string]namespace{}
	var timeout error // once a command has timed out, the others would too
	for _, m := range d.allMembers() {
		exists := slices.Contains(existing, m.Name)
		if namespaces[m.Name] = (namespace{m, timeout}); timeout != nil || exists && d.namespaces[m.Name] == (namespace{m, nil}) {
			continue
		}
		err := d.createNamespace(ctx, m, exists)
		if namespaces[m.Name] = (namespace{m, err}); errors.Is(err, errTimeout) {
			timeout = err
		}
	}
	return namespaces
}

// createNamespace creates a namespace, unless it exists, and then sets its limits. A container that has its pipes from the daemon before
// may connect between these steps and be unlimited: its work is terminated, if not by this agent then by the next.
func (d *daemon) createNamespace(ctx context.Context, m Member, exists bool) error {
	if !exists {
		if err := d.markUnlimited(m.Name); err != nil {
			return err
		}
		if _, err := d.commandV3(ctx, "namespace", "create", m.Name, "--server="+serverName); err != nil {
			return err
		}
	}
	if err := d.setLimits(ctx, m); err != nil || !d.maybeUnlimited(m.Name) {
		return err
	}
	if err := d.terminateNamespace(ctx, m.Name); err != nil {
		return err
	}
	return d.unmarkUnlimited(m.Name)
}

// deleteNamespace deletes a namespace, unless a member needs it by now. The daemon refuses while it has clients; the next iteration of
// the loop tries again.
func (d *daemon) deleteNamespace(ctx context.Context, name string) {
	if slices.ContainsFunc(d.allMembers(), func(m Member) bool { return m.Name == name }) {
		return
	}
	if _, err := d.commandV3(ctx, "namespace", "delete", name, "--server="+serverName); err != nil {
		d.manager.Log.Debug("MPS namespace not deleted", "slice", d.slice, "namespace", name, "error", err)
		return
	}
	_ = d.unmarkUnlimited(name) // a mark that remains only terminates the clients of the next namespace of that name once
}

// setNamespaces stores the state of the members' namespaces.
func (d *daemon) setNamespaces(namespaces map[string]namespace) {
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	d.setNamespacesLocked(namespaces)
}

// setNamespacesLocked is setNamespaces for callers that hold the manager's lock.
func (d *daemon) setNamespacesLocked(namespaces map[string]namespace) {
	same := maps.EqualFunc(d.namespaces, namespaces, func(a, b namespace) bool {
		return a.Member == b.Member && fmt.Sprint(a.err) == fmt.Sprint(b.err)
	})
	d.namespaces, d.unpublished = namespaces, d.unpublished || !same
}

// markUnlimited records, before a namespace is created, that it may have unlimited clients until its limits are set. The record is a file
// and outlives an agent that is killed in between.
func (c control) markUnlimited(namespace string) error {
	file := c.unlimitedFile(namespace)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o644)
}

// maybeUnlimited reports whether a namespace may have unlimited clients.
func (c control) maybeUnlimited(namespace string) bool {
	_, err := os.Stat(c.unlimitedFile(namespace))
	return !errors.Is(err, os.ErrNotExist)
}

func (c control) unmarkUnlimited(namespace string) error {
	return ignoreNotExist(os.Remove(c.unlimitedFile(namespace)))
}

func (c control) unlimitedFile(namespace string) string {
	return filepath.Join(c.logDir(c.slice), "begun", namespace)
}
