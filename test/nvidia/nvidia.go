// Package nvidia finds NVIDIA's user-space software for tests: driver libraries, MPS daemons, headers and the compiler, which
// hack/nvidia.sh downloads. It needs no GPU.
package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Drivers returns the driver branches that hack/nvidia.txt lists.
func Drivers() []string { return []string{"535", "550", "555"} }

// Folder returns the absolute path of a downloaded folder of hack/nvidia.txt. A folder such as "535" has the driver's programs in
// bin and its libraries in lib. It skips the test if the folder is missing.
func Folder(t testing.TB, name string) string {
	t.Helper()
	folder, err := Find(name)
	if err != nil {
		t.Skip(err)
	}
	return folder
}

// Find is like Folder, but returns an error if the folder is missing.
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
