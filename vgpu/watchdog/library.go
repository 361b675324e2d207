package watchdog

import (
	"iter"
	"slices"
	"strings"
)

// withoutCUDA lists the prefixes of the names of the NVIDIA driver's libraries that use a GPU without libcuda, where the hook enforces
// limits: OpenCL, then OpenGL and Vulkan.
var withoutCUDA = []string{
	"libnvidia-opencl.so", "libGLX_nvidia.so", "libEGL_nvidia.so", "libnvidia-glcore.so", "libnvidia-eglcore.so",
}

// IsWithoutCUDA reports whether a library, by its base name, uses a GPU without libcuda, and so without the hook.
func IsWithoutCUDA(library string) bool {
	return slices.ContainsFunc(withoutCUDA, func(beginning string) bool { return strings.HasPrefix(library, beginning) })
}

// LibraryWithoutHook returns, of all libraries that a process has loaded, the name of one by which it uses the GPU without the hook, or ""
// if none is known to. libcuda counts only for a process without a session, since a session shows that calls to libcuda go through the
// hook.
func LibraryWithoutHook(loaded iter.Seq[string], session bool) (name string) {
	for library := range loaded {
		if IsWithoutCUDA(library) {
			return library
		}
		if !session && strings.HasPrefix(library, "libcuda.so") {
			name = library
		}
	}
	return name
}
