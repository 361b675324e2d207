package cluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/test/cluster/machine"
)

// cniPlugins is where distributions keep the network plugins.
const cniPlugins = "/usr/lib/cni"

// packages are the Debian packages of the programs.
var packages = map[string]string{
	"runc": "runc", "busybox": "busybox-static", "ip": "iproute2", "mount": "mount", "gcc": "gcc and libc6-dev",
	filepath.Join(cniPlugins, "bridge"): "containernetworking-plugins",
}

// missing returns what a cluster needs and does not find.
func missing() error {
	if os.Getuid() != 0 {
		return errors.New("a cluster needs root")
	}
	if err := machine.Probe(); err != nil {
		return err
	}
	var absent []string
	for _, program := range slices.Sorted(maps.Keys(packages)) {
		if _, err := exec.LookPath(program); err != nil {
			absent = append(absent, packages[program])
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("a cluster needs the packages %s", strings.Join(absent, ", "))
	}
	return nil
}
