package watchdog

import (
	"slices"
	"testing"
)

func TestLibraryWithoutHook(t *testing.T) {
	for name, test := range map[string]struct {
		loaded  []string
		session bool
		want    string
	}{
		"none":                    {nil, false, ""},
		"static":                  {[]string{"libc.so.6"}, false, ""},
		"CUDA with the hook":      {[]string{"libcuda.so.535.1", "libgshare.so", "libc.so.6"}, true, ""},
		"CUDA without the hook":   {[]string{"libcuda.so.535.1", "libc.so.6"}, false, "libcuda.so.535.1"},
		"OpenCL":                  {[]string{"libOpenCL.so.1", "libnvidia-opencl.so.535.1"}, false, "libnvidia-opencl.so.535.1"},
		"OpenCL beside CUDA":      {[]string{"libcuda.so.1", "libnvidia-opencl.so.1"}, false, "libnvidia-opencl.so.1"},
		"OpenCL with a session":   {[]string{"libnvidia-opencl.so.1", "libcuda.so.1"}, true, "libnvidia-opencl.so.1"},
		"Vulkan":                  {[]string{"libvulkan.so.1", "libGLX_nvidia.so.0"}, true, "libGLX_nvidia.so.0"},
		"another vendor's OpenCL": {[]string{"libOpenCL.so.1", "libpocl.so.2"}, true, ""},
		"management only":         {[]string{"libnvidia-ml.so.1"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LibraryWithoutHook(slices.Values(test.loaded), test.session); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
