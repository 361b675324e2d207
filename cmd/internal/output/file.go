package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CheckFile returns an error if a file cannot be written or replaced. Commands that write it after long work call this first.
func CheckFile(name string) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder", name)
	}
	return CheckFolder(filepath.Dir(name))
}

// CheckFolder returns an error if no file can be created in a folder.
func CheckFolder(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", name)
	}
	file, err := os.CreateTemp(name, ".gshare-*")
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return fmt.Errorf("write into %s: %w", name, path.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}
