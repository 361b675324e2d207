package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// build brings the cluster's programs up to date and returns their folder. That takes seconds, and minutes the first
// time: hack/test.sh does it before the tests, which have a time limit.
var build = sync.OnceValues(func() (folder string, err error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	command := exec.Command(filepath.Join(root, "hack", "cluster.sh"), "build")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return filepath.Join(root, "bin", "cluster"), nil
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
