package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// What the child processes and package program agree on. A child's command line is: program ChildArgument role flags...
const (
	ChildArgument = "__gshare-child"
	RoleServer    = "kube-apiserver"
	RoleScheduler = "kube-scheduler"

	// EtcdURL is a socket relative to the state directory, in which the child runs: no port to clash with, no length limit on the
	// directory's path, and no access for other users of the machine.
	EtcdURL = "unix://etcd.sock"

	// LogFolder holds the logs, below the state directory.
	LogFolder = "logs"
)

// Hyperkube is the environment variable that names the program of the children. Without it hyperkube is built where it is out of date.
const Hyperkube = "GSHARE_HYPERKUBE"

var ownProgram bool

// UseOwnProgram makes the calling binary the program of all children. Package program calls it.
func UseOwnProgram() { ownProgram = true }

// executable returns the program that children run.
func executable() (string, error) {
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
	root, err := repository()
	if err != nil {
		return "", err
	}
	command := exec.Command(filepath.Join(root, "hack", "cluster.sh"), "hyperkube")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return filepath.Join(root, "bin", "cluster", "hyperkube"), nil
})

// repository returns the root of the checkout that the working folder is in, as it is in a test.
func repository() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; folder != "/"; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "hack", "cluster.sh")); err == nil {
			return folder, nil
		}
	}
	return "", errors.New("hack/cluster.sh is in no folder above the working folder")
}
