package partition

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

// Store stores one journal. When Save returns, the text survives a loss of power. After an error, Load returns the old text or the new one,
// never a mixture.
type Store interface {
	Load() ([]byte, error) // nil if nothing was saved
	Save(text []byte) error
}

// File is a Store in the file of this name.
type File string

// JournalFile returns the journal of a GPU in the agent's directory.
func JournalFile(dir, uuid string) File {
	return File(filepath.Join(dir, "mig-"+filepath.Base(uuid)+".json"))
}

// JournalGPU returns the UUID of the GPU whose journal has a file name, and whether the name is that of a journal.
func JournalGPU(name string) (uuid string, ok bool) {
	uuid, mig := strings.CutPrefix(name, "mig-")
	uuid, json := strings.CutSuffix(uuid, ".json")
	return uuid, mig && json
}

// Load implements Store.
func (f File) Load() ([]byte, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Save implements Store.
func (f File) Save(text []byte) error { return atomicfile.WriteFile(string(f), text, 0o600) }

// BootID returns the kernel's identifier of the current boot.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
