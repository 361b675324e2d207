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

// cniPlugins is the directory in which Linux distributions install the CNI network plugins.
const cniPlugins = "/usr/lib/cni"

// requiredPackages maps the programs that a cluster needs from the Linux distribution to their Debian packages.
var requiredPackages = map[string]string{
	"runc": "runc", "busybox": "busybox-static", "ip": "iproute2", "mount": "mount", "gcc": "gcc and libc6-dev",
	filepath.Join(cniPlugins, "bridge"): "containernetworking-plugins",
}

// checkRequirements returns an error unless this machine can run a cluster: as root, with namespaces, and with the required packages
// installed.
func checkRequirements() error {
	if os.Getuid() != 0 {
		return errors.New("a cluster needs root")
	}
	if err := machine.CheckSupported(); err != nil {
		return err
	}
	var absent []string
	for _, program := range slices.Sorted(maps.Keys(requiredPackages)) {
		if _, err := exec.LookPath(program); err != nil {
			absent = append(absent, requiredPackages[program])
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("a cluster needs the packages %s", strings.Join(absent, ", "))
	}
	return nil
}
