// Package atomicfile replaces files in such a way that no reader ever sees, and no crash ever leaves, half a file.
package atomicfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile replaces the file at path by data with exactly the given permissions. When it returns nil, the file survives a power
// failure; after an error or a crash, path holds the old content or the new one. Calls for one path must not overlap: they share
// the temporary file path.next.
func WriteFile(path string, data []byte, perm os.FileMode) error {
	temporary := path + ".next"
	if err := writeSynced(temporary, data, perm); err != nil {
		_ = syscall.Unlink(temporary)
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		_ = syscall.Unlink(temporary)
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// Update replaces the file at path like WriteFile, unless it has this content: a full disk then does no harm.
func Update(path string, data []byte, perm os.FileMode) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode() == perm {
		if old, err := TryRead(path); err == nil && bytes.Equal(old, data) {
			return syncFolder(filepath.Dir(path)) // whoever wrote it may not have got to this
		}
	}
	return WriteFile(path, data, perm)
}

// writeSynced creates a new file with this content and returns once it is on disk. O_EXCL makes it fail if a file or symbolic link with the
// name exists.
func writeSynced(path string, data []byte, perm os.FileMode) error {
	if err := syscall.Unlink(path); err != nil && err != syscall.ENOENT {
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Chmod(perm), file.Sync(), file.Close())
}

// syncFolder fsyncs a directory, so that a rename in it survives a power failure.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
