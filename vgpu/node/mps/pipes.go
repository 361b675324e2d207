package mps

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// removePipes removes the pipes of a daemon that has ended: clients that find them would hang or fail, and so would the next daemon.
// Directories that containers may have mounted stay, as a mount does not follow a new directory of the same name. Since tenants can write
// to them, links in them are never followed to the outside.
func (c control) removePipes() error {
	root, err := os.OpenRoot(c.PipeDir(c.slice))
	if err != nil {
		return ignoreNotExist(err)
	}
	defer root.Close()
	return removeContents(root, ".")
}

// removeContents removes what a directory contains, except for directories that containers may have mounted, and their parents.
func removeContents(root *os.Root, dir string) (all error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	all = ignoreNotExist(err)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case !e.IsDir() || name != serverName && !isNamespaceDir(name):
			all = errors.Join(all, root.RemoveAll(name))
		case isNamespaceDir(name):
			_ = removeContents(root, name) // its tenant may create files meanwhile, which must not keep the next daemon from starting
		default:
			all = errors.Join(all, removeContents(root, name))
		}
	}
	return all
}

// isNamespaceDir reports whether a path relative to a slice's pipe directory is the directory of an MPS v3 namespace.
func isNamespaceDir(name string) bool { return path.Dir(name) == serverName }
