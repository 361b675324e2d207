package nvidia_test

import (
	"debug/elf"
	"path/filepath"
	"testing"

	"github.com/gshare-dev/gshare/test/nvidia"
)

// TestFolders checks that each driver's folder has the programs and libraries that the other tests rely on.
func TestFolders(t *testing.T) {
	for _, driver := range nvidia.Drivers() {
		t.Run(driver, func(t *testing.T) {
			folder := nvidia.Folder(t, driver)
			for _, name := range []string{"bin/nvidia-cuda-mps-control", "bin/nvidia-cuda-mps-server", "lib/libcuda.so.1", "lib/libnvidia-ml.so.1"} {
				file, err := elf.Open(filepath.Join(folder, name))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				file.Close()
			}
		})
	}
}
