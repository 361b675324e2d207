package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// restore takes over what an earlier agent had granted. All of it joins the slices before any process may come back: what is
// not known to be there might be granted to others.
func (a *Agent) restore() error {
	if err := os.MkdirAll(a.grantsDir(), 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(a.grantsDir())
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, entry := range entries {
		g, err := a.read(entry.Name())
		if err != nil {
			a.Log.Warn("a directory is no grant's", "directory", entry.Name(), "err", err)
			if err := os.RemoveAll(a.dir(entry.Name())); err != nil {
				return err
			}
			continue
		}
		a.book.Restore(g)
	}
	a.Log.Info("restored", "grants", len(a.book.All()))
	return a.resume()
}

// resume serves the containers that have a grant and are not served yet. Where that fails their processes go on by their policy file,
// and the shares stay taken. The caller holds the lock.
func (a *Agent) resume() (all error) {
	var back []*tokenserver.Container
	for _, g := range a.book.All() {
		if g.Class() == share.Exclusive || a.containers[g.ID()] != nil {
			continue
		}
		err := a.prepare(&g)
		if errors.Is(err, errInstance) {
			a.Log.Warn("a container is not served before its instance is known", "container", g.String(), "err", err)
			continue
		}
		if err != nil {
			a.Log.Error("serve a container again", "container", g.String(), "err", err)
			continue
		}
		back = append(back, a.containers[g.ID()])
	}
	a.hold()
	for _, c := range back {
		all = errors.Join(all, c.Listen())
	}
	return all
}

func (a *Agent) read(id string) (grant.Grant, error) {
	text, err := os.ReadFile(filepath.Join(a.dir(id), recordName))
	if err != nil {
		return grant.Grant{}, err
	}
	g, err := grant.Decode(text)
	if err == nil && g.ID() != id {
		err = os.ErrInvalid
	}
	return g, err
}

// adopt grants what the kubelet has recorded, as soon as it says so. After a reboot files and records are gone; until the plugin
// has registered, the kubelet creates containers without asking it, and the runtime refuses those whose file is not there yet.
func (a *Agent) adopt(ctx context.Context) {
	claims, err := a.Records.All(ctx)
	if err != nil {
		return // the agent has ended
	}
	for began := time.Now(); len(claims) > 0; pause(ctx, lookAgain) {
		over := ctx.Err() != nil || time.Since(began) > patience
		claims = slices.DeleteFunc(claims, func(claim grant.Claim) bool {
			err := a.admit(claim)
			if passing(err) && !over {
				return false // MPS daemons, say, are found one after the other
			}
			a.explain(claim, claim.Tickets, err)
			return true
		})
	}
}

const inventoryName = "inventory.json"

// recall takes over the inventory that was published last: from this machine's own note, after a reboot from the API server.
func (a *Agent) recall(ctx context.Context) {
	text, err := os.ReadFile(filepath.Join(a.Config.Directory, inventoryName))
	published := kube.Inventory{}
	if err == nil {
		published, err = kube.DecodeInventory(string(text))
	}
	if err != nil {
		published, err = a.Cluster.Published(ctx)
	}
	if err != nil {
		a.Log.Warn("what was published before is not known", "err", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inventory = inventory.From(a.inventoryConfig(), published)
}

// note keeps what is published for the next agent.
func (a *Agent) note(text string) error {
	return atomicfile.WriteFile(filepath.Join(a.Config.Directory, inventoryName), []byte(text), 0o644)
}
