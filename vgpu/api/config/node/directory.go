package node

import (
	"errors"
	"path/filepath"
)

// ControlSocket is the name of the control socket in the agent's directory.
const ControlSocket = "control.sock"

// DefaultDirectory returns where the agent of a user has its sockets: root's is the machine's.
func DefaultDirectory(uid int, runtimeDir string) (string, error) {
	switch {
	case uid == 0:
		return "/run/gshare", nil
	case runtimeDir == "":
		return "", errors.New("XDG_RUNTIME_DIR is not set: the configuration has to say directory")
	}
	return filepath.Join(runtimeDir, "gshare"), nil
}
