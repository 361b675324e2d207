package tokenserver

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

// The entries of a container's directory.
const (
	SocketName  = "token.sock"
	PolicyName  = "policy"
	sessionsDir = "sessions" // holds an empty file for each session, which a restarted server reads
)

func (c *Container) createDir() error {
	if err := os.MkdirAll(filepath.Join(c.Dir, sessionsDir), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(c.Dir, PolicyName), []byte(policyText(c.VGPUs)), 0o644)
}

// policyText returns the content of the policy file: the limits by which the hook paces itself while the server is unreachable.
func policyText(vgpus []VGPU) string {
	var b strings.Builder
	b.WriteString("version 1\n")
	for _, v := range vgpus {
		fmt.Fprintf(&b, "vgpu %d %s memory %d quota %d sm %d\n", v.Index, v.UUID, v.Memory, v.guaranteedFraction(), v.SMRequest)
	}
	return b.String()
}

// listen opens a socket that every process in the container may connect to. The socket file stays when the listener closes: clients retry
// it until the next server replaces it.
func listen(name string) (*net.UnixListener, error) {
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(name, 0o666); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

func (c *Container) sessionFile(id uint64) string {
	return filepath.Join(c.Dir, sessionsDir, strconv.FormatUint(id, 16))
}

func (c *Container) removeSessionFile(id uint64) { _ = os.Remove(c.sessionFile(id)) }

// listSessions returns the IDs of the sessions that an earlier server left open.
func (c *Container) listSessions() (ids []uint64, err error) {
	entries, err := os.ReadDir(filepath.Join(c.Dir, sessionsDir))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if id, err := strconv.ParseUint(entry.Name(), 16, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
