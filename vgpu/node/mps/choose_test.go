package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mute lets the driver's program be killed when it is asked for its help, while the file that is given exists.
func (r *rig) mute() (file string) {
	r.t.Helper()
	dir := r.t.TempDir()
	file, wrapper := filepath.Join(dir, "mute"), filepath.Join(dir, program)
	script := fmt.Sprintf("#!/bin/sh\n[ -e %s ] && [ \"$3\" = -h ] && kill -9 $$\nexec %s \"$@\"\n", file, filepath.Join(r.folder, r.driver, program))
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.Close()
	c := r.Config
	c.Program = wrapper
	r.Keeper = New(c)
	r.t.Cleanup(r.Keeper.Close)
	return file
}

// TestNoHelp: a program that does not say what it can is no older one. Members of a daemon with namespaces have another with them;
// before there are any, no daemon is started on a guess.
func TestNoHelp(t *testing.T) {
	r := newRig(t, namespaces)
	mute := r.mute()
	pipe := r.opensFor(small)
	r.Hold([]Member{small})
	if err := os.WriteFile(mute, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.another(r.daemon())
	if again := r.opensFor(small); again != pipe || !r.Binds(slice, small.Name) {
		t.Errorf("pipes %s, not %s", again, pipe)
	}
	r.Hold([]Member{small}) // whoever has asked has come
	r.Hold(nil)
	r.eventually("no daemon", func() bool {
		daemons, _ := r.control(slice).processes()
		return len(daemons) == 0
	})
	r.eventually("told why", func() bool {
		_, err := r.Open(small)
		return errors.Is(err, ErrClosed) && strings.Contains(err.Error(), "the help of")
	})
	if err := os.Remove(mute); err != nil {
		t.Fatal(err)
	}
	if again := r.opensFor(small); again != pipe {
		t.Errorf("pipes %s, not %s", again, pipe)
	}
}
