package nvidia_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/nvidia"
)

// TestImages checks that the hook determines the size of variables in the output of the real nvcc: PTX, a cubin, and fat binaries, including
// compressed and relocatable ones.
func TestImages(t *testing.T) {
	toolkit := filepath.Join(nvidia.Folder(t, "cuda-12.4"), "usr")
	for _, compiler := range []string{"gcc", "g++"} {
		if _, err := exec.LookPath(compiler); err != nil {
			t.Skipf("%s is not installed", compiler)
		}
	}
	folder := t.TempDir()
	output(t, exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", folder+"/images", "test/nvidia/programs/images.c",
		"hook/src/image.c", "hook/src/ptx.c", "hook/src/lz4.c"))
	for _, test := range []struct {
		name    string
		options []string
	}{
		{"ptx", []string{"--ptx", "-arch", "compute_90"}},
		{"cubin", []string{"--cubin", "-arch", "sm_90"}},
		{"fat", []string{"--fatbin", "-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90"}},
		{"compressed", []string{"--fatbin", "-arch", "sm_90", "-Xfatbin", "-compress-all"}},
		{"relocatable", []string{"--fatbin", "-arch", "sm_90", "-rdc=true"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			image := filepath.Join(folder, test.name)
			nvcc := exec.Command(toolkit+"/lib/nvidia-cuda-toolkit/bin/nvcc", append(test.options, "-I"+toolkit+"/include", "-o", image,
				"test/nvidia/programs/images.cu")...)
			nvcc.Env = append(os.Environ(), "LD_LIBRARY_PATH="+toolkit+"/lib/x86_64-linux-gnu",
				"PATH="+toolkit+"/lib/nvidia-cuda-toolkit/bin:"+toolkit+"/bin:"+os.Getenv("PATH"))
			output(t, nvcc)
			if got := strings.TrimSpace(output(t, exec.Command(folder+"/images", image))); got != "5368709136" {
				t.Errorf("the hook reads %s bytes, want %d", got, 5<<30+16)
			}
		})
	}
}
