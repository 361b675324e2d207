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

func TestWhyUnhooked(t *testing.T) {
	const static, musl, glibc = "statically linked", "linked with musl", "started without libgshare.so"
	for name, test := range map[string]struct {
		loaded []string
		want   string
	}{
		"hooked":             {[]string{"libcuda.so.535.1", "libc.so.6", "libgshare.so", "ld-linux-x86-64.so.2"}, ""},
		"glibc":              {[]string{"libcuda.so.535.1", "libc.so.6", "ld-linux-x86-64.so.2"}, glibc},
		"old glibc":          {[]string{"libc-2.28.so", "ld-2.28.so"}, glibc},
		"glibc of POWER":     {[]string{"libc.so.6", "ld64.so.2"}, glibc},
		"static":             {nil, static},
		"static with driver": {[]string{"libcuda.so.535.1"}, static},
		"musl":               {[]string{"libstdc++.so.6", "ld-musl-x86_64.so.1"}, musl},
		"musl of Debian":     {[]string{"libc.so"}, musl},
		"musl of a package":  {[]string{"libc.musl-aarch64.so.1"}, musl},
	} {
		t.Run(name, func(t *testing.T) {
			if got := WhyUnhooked(test.loaded); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
