package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// prepare makes folders, secrets, machines and their network.
func (c *Cluster) prepare(ctx context.Context) (err error) {
	if c.Dir, c.lock, err = newState(); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	for _, name := range []string{"logs", "kubernetes", "images"} {
		if err := os.Mkdir(filepath.Join(c.Dir, name), 0o755); err != nil {
			return err
		}
	}
	users := []access.User{access.Admin, access.Scheduler, access.ControllerManager}
	for index := range c.options.Nodes {
		node := newNode(c, index)
		c.Nodes = append(c.Nodes, node)
		users = append(users, access.Node(node.Name))
	}
	if c.credentials, err = access.New(c.file("kubernetes"), users, controlAddress, "127.0.0.1"); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.Config(access.Admin)); err != nil {
		return err
	}
	images := append([]Image{
		{Name: PauseImage, Files: map[string]string{"/pause": c.program("init")}, Command: "/pause", Bare: true},
		{Name: BusyboxImage},
	}, c.options.Images...)
	if c.images, err = writeImages(ctx, c.file("images"), images); err != nil {
		return err
	}
	return c.bootMachines(ctx)
}

func (c *Cluster) bootMachines(ctx context.Context) (err error) {
	if c.control, err = c.boot("control"); err != nil {
		return err
	}
	if err := makeBridge(ctx, c.control); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if node.Machine, err = c.boot(node.Name); err != nil {
			return err
		}
		if err := makeCgroup(node.Cgroup()); err != nil {
			return err
		}
		if err := connect(ctx, c.control, node); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) boot(name string) (*machine.Machine, error) {
	return machine.Boot(machine.Config{
		Name: name, Init: c.program("init"), Shared: c.Dir, Logs: filepath.Join(c.Dir, "logs"),
	})
}
