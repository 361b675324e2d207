package mps

import (
	"path/filepath"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Member describes a share to the MPS daemon of its slice. If the daemon supports namespaces (MPS v3, driver 615), each share has its own:
// processes that connect through its directory get its SMs, whatever their environment says, and no more memory than it allows. Older
// daemons rely on the environment of the processes.
type Member struct {
	Slice       string
	Name        string // lowercase letters, digits and underscores; at most 35 bytes, to fit the path of a socket
	SMs         share.PerMille
	Memory      share.Bytes // of each process, without ContextMemory
	LowPriority bool        // only the default: a process may choose another priority through its environment
}

// NewMember describes a share, with a name that is unique on its slice, for the slice's MPS daemon.
func NewMember(slice, name string, s share.Share, lowPriority bool) Member {
	return Member{Slice: slice, Name: name, SMs: s.SMLimit, Memory: s.Memory, LowPriority: lowPriority}
}

// HasLowPriority reports whether a share's kernels yield to those of others, which holds for best-effort shares on elastic slices.
func HasLowPriority(class share.Isolation, p share.Priority) bool {
	return class == share.Elastic && p != share.SLO
}

// LowPriorityVariable is an environment variable for processes of best-effort shares on elastic slices. Waiting blocks of their kernels are
// scheduled after those of clients with normal priority, so a long kernel of a training job yields at its next wave; block tokens cannot
// stop a kernel that has been launched. MPS treats it as a hint.
const LowPriorityVariable = "CUDA_MPS_CLIENT_PRIORITY=1"

// namespace is the MPS namespace of a share with its limits, or the error of creating it.
type namespace struct {
	Member
	err error
}

// HasNamespace reports whether a share has an MPS namespace, so that its processes cannot raise their limits.
func (m *Manager) HasNamespace(slice, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.daemons[slice]
	if d == nil {
		return false
	}
	n, exists := d.namespaces[name]
	return exists && n.err == nil
}

// namespaceMissing returns why the MPS namespace of a share cannot be used yet, or an empty string if it can. The caller holds the
// manager's lock.
func (d *daemon) namespaceMissing(m Member) string {
	if !d.isVersion3 {
		return ""
	}
	n, exists := d.namespaces[m.Name]
	switch {
	case !exists || n.Member != m:
		return "the share's namespace is being created"
	case n.err != nil:
		return "the share's namespace cannot be created: " + n.err.Error()
	}
	return ""
}

// memberPipeDir returns the MPS pipe directory for processes of a share. If the daemon has namespaces, this is never the directory of the
// slice, which has no limits and contains the namespaces of all shares. The caller holds the manager's lock.
func (d *daemon) memberPipeDir(m Member) string {
	if !d.isVersion3 {
		return d.ClientDir(d.slice)
	}
	return filepath.Join(d.PipeDir(d.slice), serverName, m.Name)
}
