package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// restore reads the grants of earlier agents from disk, and opens their containers' token server sockets. A record that cannot be read or
// decoded, or on which a process of its container holds a lease, is removed, since it may not hold any more when an agent that knows its version
// comes back. Its directory stays: a running container has it mounted, and would not see a new one of the same name.
func (g *granter) restore() error {
	if err := os.MkdirAll(g.grantsDir(), 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(g.grantsDir())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue // not the agent's
		}
		granted, err := g.readRecord(entry.Name())
		switch {
		case err == nil:
			g.grants.restore(granted)
		case errors.Is(err, fs.ErrNotExist): // the agent has ended before it wrote the record, or since it removed one
		case isShortage(err): // says nothing about the record
			return err
		default:
			g.Log.Warn("removing the record of a grant, which is made again if its container runs", "directory", entry.Name(), "error", err)
			if err := os.RemoveAll(filepath.Join(g.containerDir(entry.Name()), recordName)); err != nil {
				g.Log.Error("failed to remove the record of a grant", "directory", entry.Name(), "error", err)
			}
		}
	}
	g.Log.Info("restored grants", "count", len(g.grants.all()))
	g.serveRestored()
	return nil
}

// isShortage reports whether an error means that the agent or the machine lacks descriptors or memory.
func isShortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

func (g *granter) readRecord(id string) (grant.Grant, error) {
	text, err := atomicfile.TryRead(filepath.Join(g.containerDir(id), recordName))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return grant.Grant{}, errors.New("a process holds a lease on it")
	}
	if err != nil {
		return grant.Grant{}, err
	}
	granted, err := grant.Decode(text)
	if err == nil && granted.ID() != id {
		err = fmt.Errorf("the record is of %s", granted.String())
	}
	return granted, err
}

// removeUngranted removes the directories of containers without a grant whose pods are gone, which restore has left.
func (g *granter) removeUngranted(ctx context.Context) error {
	entries, err := os.ReadDir(g.grantsDir())
	if err != nil {
		return err
	}
	pods, err := g.Pods.List(ctx) // after the directories: those of later pods are not among them
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, pod := range pods {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			present[grant.Owner{UID: pod.UID, Container: c.Name}.ID()] = !kube.Ended(pod)
		}
	}
	for _, entry := range entries {
		if id := entry.Name(); !present[id] {
			err = errors.Join(err, g.removeIfUngranted(id))
		}
	}
	return err
}

func (g *granter) removeIfUngranted(id string) error {
	defer g.operations.lock(id)()
	if g.grants.has(id) {
		return nil
	}
	return os.RemoveAll(g.containerDir(id))
}

// serveRestored opens the token server sockets of granted containers that have none. It reserves all shares before it opens any socket, so
// that no reserved share is granted to another container. Containers for which this fails keep their grants, and run by their policy file
// until a later call succeeds.
func (g *granter) serveRestored() {
	g.restoring.Lock()
	defer g.restoring.Unlock()
	var listens []func()
	for _, granted := range g.grants.unserved() {
		defer g.operations.lock(granted.ID())() // held until all containers listen
		if _, served := g.grants.serviceOf(granted.ID()); served || !g.grants.contains(&granted) {
			continue
		}
		var err error
		if !exists(filepath.Join(g.containerDir(granted.ID()), recordName)) { // its setup has failed
			err = g.writeRecord(&granted)
		}
		var c *tokenserver.Container
		if err == nil {
			c, err = g.prepareService(&granted)
		}
		if err != nil {
			g.notServed.note(g.Log, &granted, err)
			continue
		}
		listens = append(listens, func() { g.notServed.note(g.Log, &granted, g.listen(c)) })
	}
	maps.DeleteFunc(g.notServed, func(id, _ string) bool { return !g.grants.has(id) })
	g.retainSlices()
	for _, listen := range listens {
		listen()
	}
}

// notServed holds, by grant ID, the latest log entry about a container that serveRestored could not serve.
type notServed map[string]string

// note logs why serveRestored could not serve a container, unless that is in the log already. err is nil if it is served.
func (n notServed) note(log *slog.Logger, granted *grant.Grant, err error) {
	switch id := granted.ID(); {
	case err == nil:
		delete(n, id)
	case n[id] != err.Error():
		n[id] = err.Error()
		log.Warn("a restored container is not served, and this is tried again", "container", granted.String(), "error", err)
	}
}
