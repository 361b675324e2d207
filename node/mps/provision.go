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

// nextIsVersion3 reports whether the next daemon is started with MPS v3, which has namespaces. It is if the driver supports them and the
// configuration allows them, but not in MIG instances, for which NVIDIA does not promise them. While the slice has shares, the next daemon
// has the same version as the last one, because containers keep the pipe directories that they were given.
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

// canProvision reports whether MPS namespaces can be created now: the daemon supports them, is needed and has no fault.
func (d *daemon) canProvision(observation supervisor.Observation) bool {
	return d.isVersion3 && observation.Wanted && observation.Daemon == supervisor.Answers && !observation.Fault
}

// provision creates the MPS server and the namespaces of the shares, and deletes all other namespaces, including those of an earlier agent.
// It returns why the slice has to be closed to all shares, or an empty string. A server that has ended disappears from the daemon's list
// together with its namespaces; clients that connected then would run without MPS.
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

// createNamespaces creates the MPS namespaces of the shares and sets their limits. Each agent sets the limits of an existing namespace
// once, since an earlier agent may have been killed before it set them.
func (d *daemon) createNamespaces(ctx context.Context, existing []string) map[string]namespace {
	namespaces := map[string]namespace{}
	var timeout error // once one command has timed out, the others would too
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

// createNamespace creates the MPS namespace of a share, unless it exists, and then sets its limits. A container that has kept its pipe
// directory from a previous daemon may connect between these steps and be unlimited. Its work is therefore terminated, by this agent or by
// the next one.
func (d *daemon) createNamespace(ctx context.Context, m Member, exists bool) error {
	if !exists {
		if err := d.markUnlimited(m.Name); err != nil {
			return err
		}
		if _, err := d.commandV3(ctx, "namespace", "create", m.Name, "--server="+serverName); err != nil {
			return err
		}
	}
	if err := d.setLimits(ctx, m); err != nil || !d.isMarkedUnlimited(m.Name) {
		return err
	}
	if err := d.terminateNamespace(ctx, m.Name); err != nil {
		return err
	}
	return d.unmarkUnlimited(m.Name)
}

// deleteNamespace deletes a namespace, unless a share needs it by now. The daemon refuses while the namespace has clients; then the next
// iteration of the loop tries again.
func (d *daemon) deleteNamespace(ctx context.Context, name string) {
	if slices.ContainsFunc(d.allMembers(), func(m Member) bool { return m.Name == name }) {
		return
	}
	if _, err := d.commandV3(ctx, "namespace", "delete", name, "--server="+serverName); err != nil {
		d.manager.Log.Debug("MPS namespace not deleted", "slice", d.slice, "namespace", name, "error", err)
		return
	}
	_ = d.unmarkUnlimited(name) // if the mark stays, that only terminates the clients of the next namespace of this name once
}

func (d *daemon) setNamespaces(namespaces map[string]namespace) {
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	d.setNamespacesLocked(namespaces)
}

// setNamespacesLocked stores the state of the shares' namespaces, and records whether it has changed. The caller holds the manager's lock.
func (d *daemon) setNamespacesLocked(namespaces map[string]namespace) {
	same := maps.EqualFunc(d.namespaces, namespaces, func(a, b namespace) bool {
		return a.Member == b.Member && fmt.Sprint(a.err) == fmt.Sprint(b.err)
	})
	d.namespaces, d.unpublished = namespaces, d.unpublished || !same
}

// markUnlimited records in a file, before a namespace is created, that clients of the namespace may be unlimited. The file is removed once
// its limits are set, so it also survives an agent that is killed in between.
func (c control) markUnlimited(namespace string) error {
	file := c.unlimitedFile(namespace)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o644)
}

// isMarkedUnlimited reports whether clients of a namespace may be unlimited, because its limits may not have been set yet.
func (c control) isMarkedUnlimited(namespace string) bool {
	_, err := os.Stat(c.unlimitedFile(namespace))
	return !errors.Is(err, os.ErrNotExist)
}

func (c control) unmarkUnlimited(namespace string) error {
	return ignoreNotExist(os.Remove(c.unlimitedFile(namespace)))
}

func (c control) unlimitedFile(namespace string) string {
	return filepath.Join(c.logDir(c.slice), "begun", namespace)
}
