package injection

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

// Install copies the hook library into a directory on the host from which containers mount it. It returns the paths of the library and of
// the ld.so.preload file. The library's name contains a hash of its content, so that running containers keep the version that they have
// loaded.
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
	if err := writeIfChanged(library, content, 0o755); err != nil {
		return "", "", err
	}
	return library, preload, writeIfChanged(preload, []byte(Library+"\n"), 0o644)
}

// writeIfChanged writes a file unless it has this content already. Containers that have mounted the old file keep its content.
func writeIfChanged(name string, content []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == string(content) {
		return nil
	}
	return atomicfile.WriteFile(name, content, mode)
}
