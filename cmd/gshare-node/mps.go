package main

import (
	"path/filepath"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
)

func daemonsOf(c config.Configuration) mps.Daemons {
	return mps.Daemons{
		Dir: filepath.Join(c.Directory, "mps"), Program: c.SimulatedMPS, Simulated: c.SimulatedDevices != "", NoNamespaces: c.MPSVersion == 2,
	}
}

// clusterDaemonsOf returns the manager of MPS daemons for an agent in a pod. These daemons must survive a restart of the agent's container.
func clusterDaemonsOf(c config.Configuration) mps.Daemons {
	d := daemonsOf(c)
	d.DetachedCgroup = cgroup.Detached{Mount: "/sys/fs/cgroup", Name: "gshare-mps"}
	return d
}
