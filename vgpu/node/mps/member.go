package mps

import (
	"path/filepath"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Member is one share of a slice. Where the daemon has namespaces (MPS v3, driver 615), the member has one of its own: the processes that come
// by its directory get its part of the SMs whatever their environment says, and no more memory than it allows. Older
// daemons have none, and go by the environment alone.
type Member struct {
	Slice  string
	Name   string // lowercase letters, digits and underscores, at most 35 in the path of a socket
	SMs    share.PerMille
	Memory share.Bytes // without ContextMemory; of each process
	Behind bool        // as the variable of that name; a process may have another priority by its environment
}

// MemberOf makes the member that has a share.
func MemberOf(slice, name string, s share.Share, behind bool) Member {
	return Member{Slice: slice, Name: name, SMs: s.SMLimit, Memory: s.Memory, Behind: behind}
}

// room is the namespace of a member, with its limits, or why it is not there.
type room struct {
	Member
	err error
}

// Binds says that a member's processes cannot loosen what MPS holds them to: it has a namespace.
func (k *Keeper) Binds(slice, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.kept[slice]
	if d == nil {
		return false
	}
	r, made := d.rooms[name]
	return made && r.err == nil
}

// lacks says what the daemon has to make before a process of the member may come. The caller holds the keeper's lock.
func (d *daemon) lacks(m Member) string {
	if !d.namespaces {
		return ""
	}
	r, made := d.rooms[m.Name]
	switch {
	case !made || r.Member != m:
		return "the share's namespace is being made"
	case r.err != nil:
		return "the share's namespace cannot be made: " + r.err.Error()
	}
	return ""
}

// pipeOf is the directory that the processes of a member come by. That of the slice shows the namespaces of all, and nobody is limited who
// comes by it: where the daemon has namespaces, nobody gets it. The caller holds the keeper's lock.
func (d *daemon) pipeOf(m Member) string {
	if !d.namespaces {
		return d.Pipe(d.slice)
	}
	return filepath.Join(d.Pipe(d.slice), serverName, m.Name)
}
