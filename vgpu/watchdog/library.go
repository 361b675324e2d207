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

// WhyUnhooked returns why a program runs without the hook (it is ...), by the names of all libraries that it has loaded. It is empty if it has loaded the hook.
// The loader of musl, which is its C library as well, cannot load a library that is linked with glibc.
func WhyUnhooked(loaded []string) string {
	musl, glibc := false, false
	for _, library := range loaded {
		switch {
		case strings.HasPrefix(library, "libgshare.so"):
			return ""
		case strings.HasPrefix(library, "ld-musl-"), strings.HasPrefix(library, "libc.musl-"), library == "libc.so":
			musl = true
		case strings.HasPrefix(library, "ld-"), strings.HasPrefix(library, "ld64.so"), strings.HasPrefix(library, "ld.so"):
			glibc = true
		}
	}
	switch {
	case musl:
		return "linked with musl"
	case glibc:
		return "started without libgshare.so"
	}
	return "statically linked"
}
