package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sysctls are system-wide kernel settings that a kubelet would change. Files with the desired values are mounted over them, so that the
// kubelet finds them as desired, and the real machine's kernel keeps its settings.
var sysctls = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// bindMounted are directories that are bind-mounted from the real file system, since containerd cannot mount its overlays on an overlay.
var bindMounted = []string{"/var/lib/containerd", "/var/lib/kubelet"}

// setUpMounts sets the host name and mounts the machine's file systems. It runs inside the machine's namespaces.
func (m *Machine) setUpMounts() error {
	if err := unix.Sethostname([]byte(m.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	for _, step := range []func() error{m.mountRun, m.mountOverlays, m.mountBindMounted, m.mountSysctls, makeMountsShared} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// sharedMount is a second mount point of the shared directory, which stays accessible while an overlay hides the first.
const sharedMount = "/run/shared"

func (m *Machine) mountRun() error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return bind(m.Shared, sharedMount)
}

// mountOverlays mounts overlays on /etc and /var, and then the shared directory again in case it is below one of them.
func (m *Machine) mountOverlays() error {
	for _, folder := range []string{"/etc", "/var"} {
		if err := m.overlay(folder); err != nil {
			return err
		}
	}
	return bind(sharedMount, m.Shared)
}

func (m *Machine) overlay(folder string) error {
	upper, work := m.inSharedMount(folder), m.inSharedMount(folder+".work")
	for _, made := range []string{upper, work} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work)
	if err := unix.Mount("overlay", folder, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount an overlay over %s: %w", folder, err)
	}
	return nil
}

func (m *Machine) mountBindMounted() error {
	for _, folder := range bindMounted {
		disk := m.inSharedMount("disks", folder)
		if err := os.MkdirAll(disk, 0o700); err != nil {
			return err
		}
		if err := bind(disk, folder); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) mountSysctls() error {
	for path, value := range sysctls {
		file := m.inSharedMount("tunables", filepath.Base(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", path, err)
		}
	}
	return nil
}

// makeMountsShared enables mount propagation for volumes of containers, as on a real node. The propagation ends at the machine.
func makeMountsShared() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

func (m *Machine) inSharedMount(parts ...string) string {
	return filepath.Join(append([]string{sharedMount, m.Name}, parts...)...)
}

func bind(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}
