package mps

import (
	"errors"
	"os"
	"path/filepath"
)

// begin notes that a namespace is being made, before it is: until that is finished it may have clients without limits. The note is a file, so
// that it outlives an agent that is killed at any point between.
func (c control) begin(name string) error {
	if err := os.MkdirAll(filepath.Dir(c.beginning(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(c.beginning(name), nil, 0o644)
}

func (c control) begun(name string) bool {
	_, err := os.Stat(c.beginning(name))
	return !errors.Is(err, os.ErrNotExist)
}

func (c control) finish(name string) error { return ignoreMissing(os.Remove(c.beginning(name))) }

func (c control) beginning(name string) string { return filepath.Join(c.log(c.slice), "begun", name) }
