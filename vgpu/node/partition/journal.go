package partition

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

// Store stores the journal of one GPU. When Save returns, the text survives a power failure. After an error, Load returns the old text or
// the new one, never a mixture.
type Store interface {
	Load() ([]byte, error) // nil if nothing was saved
	Save(text []byte) error
}

// File is a Store that uses the file of this name.
type File string

// JournalFile returns the file for the journal of a GPU in a directory.
func JournalFile(dir, uuid string) File {
	return File(filepath.Join(dir, "mig-"+filepath.Base(uuid)+".json"))
}

// JournalGPU returns the UUID of the GPU whose journal has the given file name, and whether it is the name of a journal.
func JournalGPU(name string) (uuid string, ok bool) {
	uuid, mig := strings.CutPrefix(name, "mig-")
	uuid, json := strings.CutSuffix(uuid, ".json")
	return uuid, mig && json
}

// Load returns the content of the file, or nil if it does not exist.
func (f File) Load() ([]byte, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Save replaces the content of the file atomically.
func (f File) Save(text []byte) error { return atomicfile.WriteFile(string(f), text, 0o600) }

// BootID returns the kernel's identifier of the current boot.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
