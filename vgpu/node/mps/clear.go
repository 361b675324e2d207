package mps

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// clear removes the pipes of a daemon that is dead: a client that finds them would hang or fail, and so would the next daemon. Directories
// that containers may have mounted stay, as those would not see others of the same name. Tenants write in them: no link leads out of here.
func (c control) clear() error {
	root, err := os.OpenRoot(c.Pipe(c.slice))
	if err != nil {
		return ignoreMissing(err)
	}
	defer root.Close()
	return empty(root, ".")
}

// empty removes what is in a directory, but for the mounted ones and those above them.
func empty(root *os.Root, dir string) (all error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	all = ignoreMissing(err)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case !e.IsDir() || !stays(name):
			all = errors.Join(all, root.RemoveAll(name))
		case isNamespace(name):
			_ = empty(root, name) // its tenant may make more meanwhile, and that is to keep nobody else from the next daemon
		default:
			all = errors.Join(all, empty(root, name))
		}
	}
	return all
}

// stays says of a path below the slice's pipes that it is a directory of MPS v3.
func stays(name string) bool { return name == serverName || isNamespace(name) }

func isNamespace(name string) bool { return path.Dir(name) == serverName }
