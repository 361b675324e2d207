// Package process opens processes of this machine by pidfd, which unlike a PID is never reused.
package process

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// Process is a handle of a process (pidfd), which unlike a PID never refers to another process.
type Process struct {
	PID int
	UID uint32
	fd  *os.File
}

// Peer returns a handle of the process that connected a Unix socket, as the kernel recorded it. The caller must close the handle.
func Peer(conn *net.UnixConn) (p Process, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Process{}, err
	}
	var asked error
	if err := raw.Control(func(fd uintptr) { p, asked = peerOf(int(fd)) }); err != nil {
		return Process{}, err
	}
	return p, asked
}

// PeerUser returns the user of the process that connected a Unix socket, as the kernel recorded it.
func PeerUser(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		credentials, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return 0, fmt.Errorf("read user of peer: %w", err)
	}
	return credentials.Uid, nil
}

func peerOf(socket int) (Process, error) {
	credentials, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Process{}, fmt.Errorf("read credentials of peer: %w", err)
	}
	p := Process{PID: int(credentials.Pid), UID: credentials.Uid}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) { // before Linux 6.5
		return openPeer(p.PID, p.UID)
	}
	if err != nil {
		return Process{}, fmt.Errorf("open process of peer: %w", err)
	}
	p.fd, err = pidfd(fd)
	return p, err
}

// openPeer opens a peer by its PID. If the peer has ended, another process may have its PID by now; processes that still hold the connection
// could have waited for that. So openPeer returns an error for a process that does not run as the peer's user.
func openPeer(pid int, uid uint32) (Process, error) {
	p, err := Open(pid)
	if err != nil {
		return Process{}, err
	}
	p.UID = uid
	users, err := readUsers(pid)
	if err == nil && (!p.Alive() || !slices.Contains(users, int(uid))) {
		err = fmt.Errorf("open process of peer: process %d of user %d has ended", pid, uid)
	}
	if err != nil {
		p.Close()
		return Process{}, err
	}
	return p, nil
}

// Open returns a handle of the process that has the PID now. The caller must close the handle.
func Open(pid int) (Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return Process{}, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := Process{PID: pid}
	p.fd, err = pidfd(fd)
	return p, err
}

// pidfd wraps a pidfd as a non-blocking file, so that waiting for it does not block an OS thread.
func pidfd(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Alive reports whether the process has not ended. If it returns true, everything that was read from /proc by the process's PID before the
// call belongs to this process.
func (p Process) Alive() bool {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	ended := true
	return raw.Control(func(fd uintptr) { ended = readable(fd) }) == nil && !ended
}

// Wait blocks until the process has ended or the handle is closed.
func (p Process) Wait() {
	if raw, err := p.fd.SyscallConn(); err == nil {
		_ = raw.Read(readable) // fails only when the handle is closed
	}
}

// Close closes the handle; it does not end the process. For the zero value it does nothing.
func (p Process) Close() {
	if p.fd != nil {
		p.fd.Close()
	}
}

// readable reports whether a pidfd is readable, which means that its process has ended.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

// Kill sends SIGKILL to the process.
func (p Process) Kill() error { return p.Signal(unix.SIGKILL) }

// Signal sends a signal to the process. Unlike a signal by PID, it cannot hit another process.
func (p Process) Signal(s unix.Signal) error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	if sent != nil {
		return fmt.Errorf("send %v to process %d: %w", s, p.PID, sent)
	}
	return nil
}

// StartTime returns when a process started, in clock ticks since boot. PID and start time together identify a process until the next boot.
func StartTime(pid int) (ticks uint64, err error) {
	text, err := ReadFile(pid, "stat")
	if err != nil {
		return 0, err
	}
	return parseStartTime(string(text))
}

// Now returns the present time as StartTime counts it.
func Now() (ticks uint64) {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails for no clock of Linux
	const perSecond = 100                          // USER_HZ of all machines that have GPUs
	return uint64(t.Nano() / (int64(time.Second) / perSecond))
}

// parseStartTime returns field 22 (starttime) of /proc/PID/stat. Field 2, the program's name, may contain any character and ends at the
// last closing parenthesis.
func parseStartTime(stat string) (uint64, error) {
	_, rest, found := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	const at = 22 - 3 // the first field after the name is number 3
	if !found || len(fields) <= at {
		return 0, fmt.Errorf("parse state of a process: %.100q", stat)
	}
	return strconv.ParseUint(fields[at], 10, 64)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Program returns the base name of a process's executable file, or an empty string if it cannot be read.
func Program(pid int) string {
	file, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return fileName(file)
}

// fileName returns the base name of a file that /proc names, also of one that an update has replaced. It goes into events, statuses and logs, and a
// container has chosen it: what a terminal would obey, or take for the end of a line, becomes a question mark.
func fileName(file string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, filepath.Base(strings.TrimSuffix(file, " (deleted)")))
}

// User returns the real user ID of a process. It does not use the owner of the process's files in /proc, which is root for a process that
// cannot be dumped.
func User(pid int) (uid int, err error) {
	users, err := readUsers(pid)
	if err != nil {
		return 0, err
	}
	return users[0], nil
}

// readUsers returns the user IDs of a process: the real, the effective, the saved one and that for files.
func readUsers(pid int) ([]int, error) {
	text, err := ReadFile(pid, "status")
	if err != nil {
		return nil, err
	}
	return parseUsers(string(text))
}

// parseUsers returns the four user IDs in the content of /proc/PID/status.
func parseUsers(status string) ([]int, error) {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[0] == "Uid:" {
			users := make([]int, 4)
			_, err := fmt.Sscan(strings.Join(fields[1:], " "), &users[0], &users[1], &users[2], &users[3])
			return users, err
		}
	}
	return nil, fmt.Errorf("parse status of a process: %.100q", status)
}

// maxFile is the number of bytes that are read of a file in /proc. A process determines how long its maps, arguments and environment are,
// and can make them longer than the machine's memory.
const maxFile = 4 << 20

// ErrTooLong is returned for a file in /proc that a process has made longer than the agent reads.
var ErrTooLong = errors.New("the file is too long")

// ReadFile returns the content of a file in a process's directory in /proc, or its beginning and ErrTooLong.
func ReadFile(pid int, name string) ([]byte, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		return text[:maxFile], fmt.Errorf("read %s of process %d: %w", name, pid, ErrTooLong)
	}
	return text, err
}

// StartedWith reports whether a process runs whose program was started with an environment variable of this name and value, as far as
// environments can be read. The program itself may have changed its environment since.
func StartedWith(variable string) (bool, error) {
	pids, err := AllStartedWith(variable)
	return len(pids) > 0, err
}

// AllStartedWith returns the processes whose environment had the variable, given as NAME=VALUE, when they were executed.
func AllStartedWith(variable string) (pids []int, err error) {
	err = EachEnvironment(func(pid int, variables []string) {
		if slices.Contains(variables, variable) {
			pids = append(pids, pid)
		}
	})
	return pids, err
}

// EachEnvironment calls a function with each process and the environment, as NAME=VALUE, with which its program was executed. It leaves out
// processes that have ended, and those of users that the caller cannot look into.
func EachEnvironment(visit func(pid int, variables []string)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if text, err := ReadFile(pid, "environ"); err == nil || len(text) > 0 {
			visit(pid, strings.Split(string(text), "\x00"))
		}
	}
	return nil
}

// MappedLibraries returns the base names of the shared libraries that a process has mapped, each once, in the order of their addresses. If
// the process has more mappings than are read, it returns the first ones and ErrTooLong. A process that has ended has none, and gives an error.
func MappedLibraries(pid int) ([]string, error) {
	text, err := ReadFile(pid, "maps")
	if err == nil && len(text) == 0 {
		err = os.ErrProcessDone
	}
	return parseMapped(string(text)), err
}

// parseMapped returns the shared libraries in the content of /proc/PID/maps. A file's name, which may have spaces, follows five fields.
func parseMapped(maps string) (libraries []string) {
	last := ""
	for line := range strings.Lines(maps) {
		slash := strings.IndexByte(line, '/')
		if slash < 0 || line[slash:] == last {
			continue
		}
		last = line[slash:]
		name := fileName(strings.TrimSuffix(last, "\n"))
		if strings.Contains(name, ".so") && !slices.Contains(libraries, name) {
			libraries = append(libraries, name)
		}
	}
	return libraries
}
