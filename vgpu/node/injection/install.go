package injection

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

// Install puts the hook where containers can be given it from: under a name of its content, so that one that running
// containers have mapped is never changed. It gives the library and the file for PreloadPath.
func Install(hook, dir string) (library, preload string, err error) {
	content, err := os.ReadFile(hook)
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(content)
	library = filepath.Join(dir, "libgshare-"+hex.EncodeToString(sum[:8])+".so")
	preload = filepath.Join(dir, "ld.so.preload")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	if err := place(library, content, 0o755); err != nil {
		return "", "", err
	}
	return library, preload, place(preload, []byte(Library+"\n"), 0o644)
}

// place writes a file as a whole, unless it is there: whoever mounted it keeps what he mounted.
func place(name string, content []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == string(content) {
		return nil
	}
	return atomicfile.WriteFile(name, content, mode)
}
