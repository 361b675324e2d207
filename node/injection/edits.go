// Package injection computes what is added to a container with a grant: the devices, the hook in front of the CUDA driver, and the socket of
// the token server. It also refuses pods whose own fields could bypass these.
package injection

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/hookfile"
	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// Paths in a container.
const (
	PreloadPath = "/etc/ld.so.preload"
	LibraryDir  = "/usr/lib/gshare"
	Library     = LibraryDir + "/libgshare.so"
	SocketDir   = "/run/gshare" // the hook's default
	MPSDir      = "/run/gshare-mps"
	DrainDir    = LibraryDir + "/drain" // has the program for preStop hooks, and the socket to which it connects
	StoreDir    = "/run/gshare-store"   // has the model store of each slice, by the slice's number in the container
)

// Environment variables: the path of the model store's socket, and the path of the library through which programs use the store.
const (
	StoreVariable        = "GSHARE_STORE"
	StoreLibraryVariable = "GSHARE_STORE_LIBRARY"
)

// The files in DrainDir: the program, which lies beside the hook, and the agent's socket.
const (
	DrainProgram = "gshare-drain"
	DrainSocket  = "socket"
)

// Files for programs that use a model store: a library, and modules for Python. They lie beside the hook on the host and are mounted in
// LibraryDir.
const (
	storeLibrary      = "libgshare_store.so"
	storeModule       = "gshare_store.py"
	safetensorsModule = "gshare_safetensors.py"
)

// Host describes the files and devices on the node that are injected into containers.
type Host struct {
	Hook    string // path of the hook library; empty if the node has none, and then shares no slice
	Preload string // path of a file that contains the path Library
	Driver  cdi.Driver
	// AllLibraries leaves the driver's libraries for OpenCL, OpenGL and Vulkan in containers with a shared slice. The hook does not limit
	// their use.
	AllLibraries bool

	Capabilities cdi.Capabilities          // of MIG instances
	Device       func(slice string) Device // nil: each slice is the device with its ID as UUID
	// Store returns the directory with the socket of a slice's model store. If it is nil, there are no stores.
	Store func(slice, namespace string) string
	// StoreFiles are the paths of the files for programs that use a model store, by their name in LibraryDir. It lacks files that the node
	// does not have.
	StoreFiles map[string]string
	// Drain is the directory that clients of MPS have at DrainDir; empty if the node lacks the program in it.
	Drain string
}

// Device identifies a slice as CUDA programs and the driver do: by its UUID and, for a MIG instance, the driver's numbers.
type Device struct {
	UUID string
	MIG  *cdi.Instance // nil: a whole GPU
}

func (h Host) device(slice string) Device {
	if h.Device == nil {
		return Device{UUID: slice}
	}
	return h.Device(slice)
}

// checkListed returns an error for a MIG instance that the driver does not list now: it would otherwise be injected as a whole GPU.
func (d Device) checkListed(slice string) error {
	if d.UUID == "" || d.MIG == nil && strings.HasPrefix(d.UUID, "MIG-") {
		return fmt.Errorf("slice %s: the driver does not list the MIG instance now", slice)
	}
	return nil
}

// deviceEdits returns the container edits with the device nodes and libraries for these devices.
func (h Host) deviceEdits(devices []Device) (edits specs.ContainerEdits, err error) {
	for _, d := range devices {
		var whole []string
		var nodes specs.ContainerEdits
		if d.MIG == nil {
			whole = []string{d.UUID}
		} else if h.Driver != "" {
			if nodes, err = h.Capabilities.Edits(*d.MIG); err != nil {
				return specs.ContainerEdits{}, err
			}
		}
		own, err := h.Driver.Edits(whole)
		if err != nil {
			return specs.ContainerEdits{}, err
		}
		edits = cdi.Join(cdi.Join(edits, own), nodes)
	}
	return edits, nil
}

// Edits returns the CDI container edits for a grant: devices, hook library, token server socket, and what the container shares with its MPS
// daemon. dir is the container's directory on the host. endpoint is that of its MPS daemon, or empty if none runs.
func (h Host) Edits(g *grant.Grant, dir string, endpoint mps.Endpoint) (specs.ContainerEdits, error) {
	var uuids []string
	var devices []Device
	for _, v := range g.VGPUs {
		d := h.device(v.Slice)
		if err := d.checkListed(v.Slice); err != nil {
			return specs.ContainerEdits{}, err
		}
		uuids, devices = append(uuids, d.UUID), append(devices, d)
	}
	edits, err := h.deviceEdits(devices)
	if err != nil {
		return specs.ContainerEdits{}, err
	}
	// The directory is deleted with the grant, so no container can be created from an outdated CDI file that a runtime still has.
	edits = cdi.Join(specs.ContainerEdits{
		Env: []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(uuids, ",")}, Mounts: []*specs.Mount{readOnlyMount(dir, SocketDir)},
	}, cdi.Join(h.storeEdits(g), edits))
	if g.Class() == share.Exclusive {
		return edits, nil // it has its devices alone and needs no hook
	}
	if !h.AllLibraries {
		edits.Mounts = slices.DeleteFunc(edits.Mounts, func(m *specs.Mount) bool { return watchdog.IsWithoutCUDA(filepath.Base(m.ContainerPath)) })
	}
	edits = cdi.Join(edits, specs.ContainerEdits{Mounts: []*specs.Mount{readOnlyMount(h.Hook, Library), readOnlyMount(h.Preload, PreloadPath)}})
	return cdi.Join(edits, h.mpsEdits(g, endpoint)), nil
}

// storeEdits returns the container edits with the sockets of the model stores and the files for using them, if the container's pod declares
// weights. The environment variable names the socket of the first slice. The sockets' directories are mounted, since a store that replaces
// another one creates a new socket.
func (h Host) storeEdits(g *grant.Grant) (edits specs.ContainerEdits) {
	if h.Store == nil || len(g.Weights) == 0 {
		return edits
	}
	for i, v := range g.VGPUs {
		edits.Mounts = append(edits.Mounts, readOnlyMount(h.Store(v.Slice, g.Namespace), filepath.Join(StoreDir, strconv.Itoa(i))))
	}
	edits.Env = []string{StoreVariable + "=" + filepath.Join(StoreDir, "0", modelstore.SocketName)}
	for _, name := range slices.Sorted(maps.Keys(h.StoreFiles)) {
		edits.Mounts = append(edits.Mounts, readOnlyMount(h.StoreFiles[name], filepath.Join(LibraryDir, name)))
	}
	if h.StoreFiles[storeLibrary] != "" {
		edits.Env = append(edits.Env, StoreLibraryVariable+"="+filepath.Join(LibraryDir, storeLibrary))
	}
	return edits
}

// mpsEdits returns the container edits that make the container's processes clients of their slice's MPS daemon. The endpoint is empty if
// none runs. The pipe directory is mounted read-only: the container's root must not replace a pipe with its own, to which others would
// connect. The shared memory replaces what the pod has at /dev/shm: container runtimes drop other mounts at the path of a mount from a CDI
// file.
func (h Host) mpsEdits(g *grant.Grant, endpoint mps.Endpoint) specs.ContainerEdits {
	v := g.VGPUs[0]
	inside := mps.Daemons{Dir: MPSDir}.PipeDir(h.device(v.Slice).UUID)
	edits := specs.ContainerEdits{Env: mps.ClientEnvironment(inside, v.Share)}
	if mps.HasLowPriority(v.Class, v.Priority) {
		edits.Env = append(edits.Env, mps.LowPriorityVariable)
	}
	if endpoint.PipeDir != "" && h.Drain != "" {
		edits.Mounts = append(edits.Mounts, readOnlyMount(h.Drain, DrainDir))
	}
	if endpoint.PipeDir != "" {
		edits.Mounts = append(edits.Mounts, readOnlyMount(endpoint.PipeDir, inside))
	}
	if endpoint.SharedMemory != "" {
		edits.Mounts = append(edits.Mounts, &specs.Mount{
			HostPath: endpoint.SharedMemory, ContainerPath: mps.SharedMemoryPath, Options: []string{"rbind", "rw", "nosuid", "nodev", "noexec"},
		})
	}
	return edits
}

// readOnlyMount returns a read-only bind mount of a host path into the container.
func readOnlyMount(host, container string) *specs.Mount {
	return &specs.Mount{HostPath: host, ContainerPath: container, Options: []string{"rbind", "ro", "nosuid", "nodev"}}
}

// Install copies the hook library into a directory on the host from which containers mount it. It returns the paths of the library and of
// the ld.so.preload file. The library's name contains a hash of its content, so that running containers keep the version that they have
// loaded.
func Install(hook, dir string) (library, preload string, err error) {
	if err = hookfile.Check(hook); err != nil {
		return "", "", fmt.Errorf("kubernetes.hook: %w", err)
	}
	if library, err = install(hook, dir); err != nil {
		return "", "", err
	}
	preload = filepath.Join(dir, "ld.so.preload")
	return library, preload, writeIfChanged(preload, []byte(Library+"\n"), 0o644)
}

// InstallStoreFiles does the same for the files beside the hook for programs that use a model store, and returns their paths by name.
// Missing files are left out.
func InstallStoreFiles(hook, dir string) (map[string]string, error) {
	installed := map[string]string{}
	for _, name := range []string{storeLibrary, storeModule, safetensorsModule} {
		path, err := install(filepath.Join(filepath.Dir(hook), name), dir)
		switch {
		case err == nil:
			installed[name] = path
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return installed, nil
}

// InstallDrain copies the program for preStop hooks, which lies beside the hook, into a directory. It returns the directory, or "" if there is no
// such program.
func InstallDrain(hook, dir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(filepath.Dir(hook), DrainProgram))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = writeIfChanged(filepath.Join(dir, DrainProgram), content, 0o755)
	}
	return dir, err
}

// install copies a file into a directory, and returns its path there, which contains a hash of its content.
func install(source, dir string) (string, error) {
	content, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	name := filepath.Base(source)
	extension, sum := filepath.Ext(name), sha256.Sum256(content)
	path := filepath.Join(dir, strings.TrimSuffix(name, extension)+"-"+hex.EncodeToString(sum[:8])+extension)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return path, writeIfChanged(path, content, 0o755)
}

// writeIfChanged writes a file unless it has this content already. Containers that have mounted the old file keep its content.
func writeIfChanged(name string, content []byte, mode os.FileMode) error {
	if old, err := atomicfile.TryRead(name); err == nil && string(old) == string(content) {
		return nil
	}
	return atomicfile.WriteFile(name, content, mode)
}
