package main

import (
	"path/filepath"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
)

func daemonsOf(c config.Configuration) mps.Daemons {
	return mps.Daemons{Dir: filepath.Join(c.Directory, "mps"), Program: c.SimulatedMPS, Simulated: c.SimulatedDevices != ""}
}
