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

// clusterDaemonsOf are those of an agent that lives in a pod, whose end they survive. A service of systemd ends alone.
func clusterDaemonsOf(c config.Configuration) mps.Daemons {
	d := daemonsOf(c)
	d.DetachedCgroup = cgroup.Detached{Mount: "/sys/fs/cgroup", Name: "gshare-mps"}
	return d
}
