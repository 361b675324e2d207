package controlplane

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/gshare-dev/gshare/test/executable"
)

// The command line and files that this package and package program agree on. A child's command line is: program ChildArgument role flags...
const (
	ChildArgument = "__gshare-child"
	RoleServer    = "kube-apiserver"
	RoleScheduler = "kube-scheduler"

	// EtcdURL is a socket relative to the state directory, in which the child runs: no port to clash with, no length limit on the
	// directory's path, and no access for other users of the machine.
	EtcdURL = "unix://etcd.sock"

	// LogFolder is the folder of logs in the state directory.
	LogFolder = "logs"
)

// Hyperkube is the environment variable with the path of the program that children run. Without it, hyperkube is built if it is out of
// date.
const Hyperkube = "GSHARE_HYPERKUBE"

var ownProgram bool

// UseOwnProgram makes the calling binary the program of all child processes. Package program calls it.
func UseOwnProgram() { ownProgram = true }

// childProgram returns the path of the program that child processes run.
func childProgram() (string, error) {
	if ownProgram {
		return os.Executable()
	}
	return hyperkube()
}

// hyperkube returns the path of the program hyperkube, and builds it first unless the environment names one.
var hyperkube = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(Hyperkube); path != "" {
		_, err := os.Stat(path) // go test keeps results of tests for as long as the files that they look at are the same
		return path, err
	}
	folder, err := executable.Build("hyperkube")
	return filepath.Join(folder, "hyperkube"), err
})
