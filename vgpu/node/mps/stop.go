package mps

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// Stop ends the daemons of all slices, which outlive their keeper, and takes away where they lived. An error may mean that
// something has not ended yet.
func (d Daemons) Stop(ctx context.Context) error {
	if !d.Runs() {
		return nil
	}
	return errors.Join(d.end(ctx), d.Apart.Remove())
}

// end ends each by its own command, or by a signal where it does not answer.
func (d Daemons) end(ctx context.Context) error {
	entries, err := os.ReadDir(d.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if d.Pipe(e.Name()) == d.log("") {
			continue
		}
		c := d.control(e.Name())
		if refused := c.quit(ctx); refused != nil {
			err = errors.Join(err, c.kill())
		}
	}
	return err
}
