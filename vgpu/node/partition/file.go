package partition

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

// Store keeps one journal. Save returns when the text would outlive a loss of power; after an error Load gives the old text
// or the new one, never a mixture.
type Store interface {
	Load() ([]byte, error) // nil where nothing was saved
	Save(text []byte) error
}

// File is a store in the file of that name.
type File string

// FileOf is the journal of a GPU in the agent's directory.
func FileOf(dir, uuid string) File {
	return File(filepath.Join(dir, "mig-"+filepath.Base(uuid)+".json"))
}

// JournalOf is the GPU whose journal has that name in the agent's directory.
func JournalOf(name string) (uuid string, ok bool) {
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

// Boot tells one boot of this machine from all others.
func Boot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
