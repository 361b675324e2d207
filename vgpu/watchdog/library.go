package watchdog

import (
	"iter"
	"slices"
	"strings"
)

// withoutCUDA lists the beginnings of the names of libraries of NVIDIA's driver that use a GPU without libcuda, which the hook limits: OpenCL; OpenGL and Vulkan.
var withoutCUDA = []string{
	"libnvidia-opencl.so", "libGLX_nvidia.so", "libEGL_nvidia.so", "libnvidia-glcore.so", "libnvidia-eglcore.so",
}

// IsWithoutCUDA reports whether a library, by its base name, uses a GPU without libcuda, and so without the hook.
func IsWithoutCUDA(library string) bool {
	return slices.ContainsFunc(withoutCUDA, func(beginning string) bool { return strings.HasPrefix(library, beginning) })
}

// LibraryWithoutHook returns the name of the library by which a process uses the GPU without the hook, of all libraries that it has loaded. It
// is empty where none is known. libcuda counts for a process without a session only: its calls do not reach the hook.
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
