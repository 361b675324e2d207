package injection

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

// Install copies the hook into a folder that containers mount it from, and returns the paths of the library and of the file for
// PreloadPath. The name contains a hash of the content, so that a library in use by running containers is never changed.
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
	if err := install(library, content, 0o755); err != nil {
		return "", "", err
	}
	return library, preload, install(preload, []byte(Library+"\n"), 0o644)
}

// install writes a file, unless it has this content: containers that have mounted it keep theirs.
func install(name string, content []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == string(content) {
		return nil
	}
	return atomicfile.WriteFile(name, content, mode)
}
