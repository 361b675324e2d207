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

// restore enters the grants of earlier agents into the book, and serves their containers.
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
			if err := os.RemoveAll(g.dir(entry.Name())); err != nil {
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
	text, err := os.ReadFile(filepath.Join(g.dir(id), recordName))
	if err != nil {
		return grant.Grant{}, err
	}
	granted, err := grant.Decode(text)
	if err == nil && granted.ID() != id {
		err = os.ErrInvalid
	}
	return granted, err
}

// serveRestored serves the containers that have a grant and no service yet. All reserve their shares before any listens: a share that is
// not reserved could be granted to others. Where that fails the processes go on by their policy file, and the shares stay taken.
func (g *granter) serveRestored() (all error) {
	g.restoring.Lock()
	defer g.restoring.Unlock()
	var prepared []*tokenserver.Container
	for _, granted := range g.grants.all() {
		if granted.Class() == share.Exclusive {
			continue
		}
		defer g.operations.lock(granted.ID())() // until all listen
		if _, served := g.grants.serviceOf(granted.ID()); served || !g.grants.holds(&granted) {
			continue
		}
		c, err := g.prepare(&granted)
		switch {
		case errors.Is(err, errInstance):
			g.Log.Warn("a container is not served until its MIG instance is known", "container", granted.String(), "error", err)
		case err != nil:
			g.Log.Error("failed to serve a restored container", "container", granted.String(), "error", err)
		default:
			prepared = append(prepared, c)
		}
	}
	g.holdSlices()
	for _, c := range prepared {
		all = errors.Join(all, c.Listen())
	}
	return all
}

// adoptFromKubelet grants the shares of the containers that the kubelet has recorded, once it answers. After a reboot the files of grants
// are gone, and until the plugin has registered the kubelet creates containers without calling it.
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
