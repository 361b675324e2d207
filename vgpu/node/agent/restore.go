package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// restore reads the grants of earlier agents from disk, and opens their containers' token server sockets. It removes directories without a
// readable grant.
func (g *granter) restore() error {
	if err := os.MkdirAll(g.grantsDir(), 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(g.grantsDir())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		granted, err := g.readRecord(entry.Name())
		if err != nil {
			g.Log.Warn("removing a directory without a grant", "directory", entry.Name(), "error", err)
			if err := os.RemoveAll(g.containerDir(entry.Name())); err != nil {
				return err
			}
			continue
		}
		g.grants.restore(granted)
	}
	g.Log.Info("restored grants", "count", len(g.grants.all()))
	return g.serveRestored()
}

func (g *granter) readRecord(id string) (grant.Grant, error) {
	text, err := os.ReadFile(filepath.Join(g.containerDir(id), recordName))
	if err != nil {
		return grant.Grant{}, err
	}
	granted, err := grant.Decode(text)
	if err == nil && granted.ID() != id {
		err = os.ErrInvalid
	}
	return granted, err
}

// serveRestored opens the token server sockets of granted containers that have none. It reserves all shares before it opens any socket, so
// that no reserved share is granted to another container. Containers for which this fails keep their grants, and run by their policy file.
func (g *granter) serveRestored() (all error) {
	g.restoring.Lock()
	defer g.restoring.Unlock()
	var prepared []*tokenserver.Container
	for _, granted := range g.grants.all() {
		if granted.Class() == share.Exclusive {
			continue
		}
		defer g.operations.lock(granted.ID())() // held until all containers listen
		if _, served := g.grants.serviceOf(granted.ID()); served || !g.grants.contains(&granted) {
			continue
		}
		c, err := g.prepareService(&granted)
		switch {
		case errors.Is(err, errInstance):
			g.Log.Warn("a container is not served until its MIG instance is known", "container", granted.String(), "error", err)
		case err != nil:
			g.Log.Error("failed to serve a restored container", "container", granted.String(), "error", err)
		default:
			prepared = append(prepared, c)
		}
	}
	g.retainSlices()
	for _, c := range prepared {
		all = errors.Join(all, c.Listen())
	}
	return all
}

// adoptFromKubelet grants shares to containers that hold tickets in the kubelet's records but have no grant. Such containers exist after a
// reboot, which deletes the grants' files, or if they were created before the plugin registered.
func (g *granter) adoptFromKubelet(ctx context.Context) {
	claims, err := g.Records.All(ctx)
	if err != nil {
		return // the agent has ended
	}
	for began := time.Now(); len(claims) > 0; sleep(ctx, retryPeriod) {
		over := ctx.Err() != nil || time.Since(began) > retryFor
		claims = slices.DeleteFunc(claims, func(claim grant.Claim) bool {
			err := g.admit(claim)
			if isTransient(err) && !over {
				return false // such as an MPS daemon that is not found yet
			}
			g.reportRefusal(claim, claim.Tickets, err)
			return true
		})
	}
}
