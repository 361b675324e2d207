package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tunables are settings of the whole kernel that a kubelet would change. Each machine sees them set already, and the
// kernel keeps its own.
var tunables = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// disks are folders with a real file system below them, where an overlay would be in the way of other overlays.
var disks = []string{"/var/lib/containerd", "/var/lib/kubelet"}

// setUp runs inside the machine's mount and host name namespaces.
func (m *Machine) setUp() error {
	if err := unix.Sethostname([]byte(m.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	for _, step := range []func() error{m.mountRun, m.mountOverlays, m.mountDisks, m.mountTunables, shareMounts} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// stash is where the shared folder stays in reach while an overlay covers it.
const stash = "/run/shared"

func (m *Machine) mountRun() error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return bind(m.Shared, stash)
}

// mountOverlays covers /etc and /var, and puts the shared folder back if it was below one of them.
func (m *Machine) mountOverlays() error {
	for _, folder := range []string{"/etc", "/var"} {
		if err := m.overlay(folder); err != nil {
			return err
		}
	}
	return bind(stash, m.Shared)
}

func (m *Machine) overlay(folder string) error {
	upper, work := m.inStash(folder), m.inStash(folder+".work")
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

func (m *Machine) mountDisks() error {
	for _, folder := range disks {
		disk := m.inStash("disks", folder)
		if err := os.MkdirAll(disk, 0o700); err != nil {
			return err
		}
		if err := bind(disk, folder); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) mountTunables() error {
	for path, value := range tunables {
		file := m.inStash("tunables", filepath.Base(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	return nil
}

// shareMounts lets containers have volumes with mount propagation, as on a real node. Nothing leaves the machine.
func shareMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

func (m *Machine) inStash(parts ...string) string {
	return filepath.Join(append([]string{stash, m.Name}, parts...)...)
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
