// Package nvidia finds NVIDIA's user space for tests: driver libraries, MPS daemons, headers and compiler, which hack/nvidia.sh
// fetches. No GPU is needed.
package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Drivers returns the branches of the driver that hack/nvidia.txt names.
func Drivers() []string { return []string{"535", "550", "555"} }

// Folder returns the absolute path of a fetched folder of hack/nvidia.txt, such as "535", which has the driver's programs in bin and
// its libraries in lib. It skips the test if the folder is not there.
func Folder(t testing.TB, name string) string {
	t.Helper()
	folder, err := Find(name)
	if err != nil {
		t.Skip(err)
	}
	return folder
}

// Find returns what Folder does, or an error if the folder is not there.
func Find(name string) (folder string, err error) {
	base := os.Getenv("GSHARE_NVIDIA")
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("NVIDIA's packages: %w", err)
		}
		base = filepath.Join(cache, "gshare", "nvidia")
	}
	folder = filepath.Join(base, name)
	if _, err := os.Stat(filepath.Join(folder, "versions")); err != nil {
		return "", fmt.Errorf("%s is not there: fetch it with: hack/nvidia.sh fetch %s", folder, name)
	}
	return folder, nil
}
