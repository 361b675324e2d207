package tokenserver

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token"
)

const (
	// maxLateReport is how much device time a process may report after its work has ended.
	maxLateReport = 100 * time.Millisecond
	// idleTimeout is how long a running process may show no activity before it counts as idle.
	idleTimeout = 3 * time.Millisecond
)

// clientState is the state of one process on one vGPU: its shared pages, and the values last read from them.
type clientState struct {
	pid    int
	server page[tokenwire.ServerPage]
	client page[tokenwire.ClientPage]

	detached   bool          // its connection has ended, but the process may still live
	stateSince time.Duration // time of the latest state change
	lastActive time.Duration // time of the latest sign of work
	lastRead   time.Duration
	running    bool
	open       token.OpenWork
	openSince  time.Duration // time since which work is open and none has ended
	reportable time.Duration // time in which it may have used the device, less the use that it has reported
	waiting    bool          // the process waits for a token, as its page or a NEED frame reported
	waitSince  time.Duration // start of that wait
	readCounts
}

// readCounts are the counts on the page of a process as they were read last.
type readCounts struct{ launches, busy, cycles uint64 }

// newClientState creates the shared pages of a process, in state Pause.
func newClientState(v VGPU, pid int, now time.Duration) (_ *clientState, err error) {
	c := &clientState{pid: pid, stateSince: now, lastActive: now, lastRead: now}
	if c.server, err = newPage[tokenwire.ServerPage]("gshare-server", readOnlySeals); err != nil {
		return nil, err
	}
	if c.client, err = newReportPage[tokenwire.ClientPage]("gshare-client"); err != nil {
		c.server.close()
		return nil, err
	}
	config := &v.Slice.server.Config
	c.server.at.Window.Store(uint64(config.Window))
	c.server.at.RunAhead.Store(uint64(config.RunAhead))
	c.server.at.MemoryLimit.Store(uint64(v.Memory))
	c.server.at.ImportAllowance.Store(uint64(v.Imports))
	c.setState(tokenwire.Pause, now)
	return c, nil
}

// work is what a process has done between two readings of its page.
type work struct {
	busy     time.Duration // device time
	launches uint64
}

// readPage reads the page on which the process reports its use. It returns the work since the last call, and how much launched work is
// unfinished. The device time of the work is limited to the time that has passed with unfinished work, plus maxLateReport.
func (c *clientState) readPage(now, runAhead time.Duration) (work, token.OpenWork) {
	open := c.client.at.Open.Load() // read before Busy, as work moves from Open to Busy
	launches, busy := c.client.at.Launches.Load(), c.client.at.Busy.Load()
	if c.client.at.Waiting.Load() > 0 {
		c.startWait(now)
	}
	if launches != c.launches || busy != c.busy || open > 0 {
		c.lastActive = now
	}
	if busy != c.busy || c.open == token.NoWork {
		c.openSince = now
	}
	c.reportable += now - c.lastRead
	delta := min(max(busy, c.busy)-c.busy, uint64(c.reportable))
	c.reportable -= time.Duration(delta)
	switch {
	case open == 0:
		c.open = token.NoWork
		c.reportable = min(c.reportable, maxLateReport)
	case open <= uint64(runAhead):
		c.open = token.ShortWork
	default:
		c.open = token.LongWork
	}
	done := work{time.Duration(delta), max(launches, c.launches) - c.launches}
	c.launches, c.busy, c.lastRead = launches, busy, now
	return done, c.open
}

// readCycles reads the launch cycles that the process reports. It returns the start of the open cycle, or of the longest one if none is
// open, and the length of the longest cycle that ended since the last call. The start is never later than now.
func (c *clientState) readCycles(now time.Duration) (start, longest time.Duration) {
	page := c.client.at
	ended := page.Cycles.Load() // read before the times, as a process writes it after them
	for n := max(c.cycles, ended-min(ended, tokenwire.CyclesShown)); n < ended; n++ {
		longest = max(longest, time.Duration(page.CycleTimes[n%tokenwire.CyclesShown].Load()))
	}
	c.cycles = ended
	if open := time.Duration(page.CycleStart.Load()); open > 0 {
		return min(open, now), longest
	}
	return now - longest, longest
}

// startWait records that the process waits for a token, unless it runs or already waits. A process without a connection gets no tokens.
func (c *clientState) startWait(now time.Duration) {
	if !c.running && !c.waiting && !c.detached {
		c.waiting, c.waitSince = true, now
	}
}

// hasWork reports whether the process has work for the device. A process that was paused with unfinished work counts until that work has
// ended: it probably has more work, can report it only then, and should find that its vGPU still has the token.
func (c *clientState) hasWork(now time.Duration) bool {
	return c.waiting || c.open != token.NoWork || c.running && now-max(c.lastActive, c.stateSince) < idleTimeout
}

// writeToken writes a time token to the server page, which the client reads.
func (c *clientState) writeToken(t *token.Token) {
	c.server.at.Sequence.Store(t.Sequence)
	c.server.at.Amount.Store(uint64(t.Amount))
	c.server.at.Deadline.Store(uint64(t.Deadline))
}

// writeCredit writes a block token to the server page, which the client reads. The futex word Wake changes last, so that a client that
// begins to wait meanwhile sees either the new credit or the changed word.
func (c *clientState) writeCredit(t token.Token, credit uint64) {
	c.server.at.Sequence.Store(t.Sequence)
	c.server.at.Amount.Store(uint64(t.Amount))
	c.server.at.Credit.Store(credit)
	c.server.at.Wake.Add(1)
}

func (c *clientState) setRunAhead(ahead time.Duration) { c.server.at.RunAhead.Store(uint64(ahead)) }

// setState writes a state (Run or Pause) to the server page. The caller wakes the process if it may wait for the change.
func (c *clientState) setState(state tokenwire.State, now time.Duration) {
	c.stateSince = now
	c.running = state == tokenwire.Run
	c.waiting = c.waiting && !c.running
	c.server.at.SetHeartbeat(now)
	c.server.at.SetState(state)
	c.server.at.Wake.Add(1)
}

func (c *clientState) close() {
	c.server.close()
	c.client.close()
}

// subtractBounded subtracts part from an atomic sum, but never goes below least. Clients can write both numbers, so neither can be trusted.
func subtractBounded(sum *atomic.Uint64, part, least uint64) {
	for {
		old := sum.Load()
		if sum.CompareAndSwap(old, max(old-min(old, part), least)) {
			return
		}
	}
}

const (
	// fixedSizeSeals prevents clients from resizing a page, so that no access by the server can fault, and from adding seals.
	fixedSizeSeals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	// readOnlySeals also prevents new writable mappings, so that only the server, which has mapped the page before, can write it.
	readOnlySeals = unix.F_SEAL_FUTURE_WRITE | fixedSizeSeals
)

// page is one page of memory of type T that the server shares with clients.
type page[T any] struct {
	at     *T       // nil after close
	file   *os.File // passed to clients
	memory []byte
}

// newPage creates a zeroed page in a memfd with the given seals, which the server can write.
func newPage[T any](name string, seals int) (page[T], error) {
	return createPage[T](name, seals, (*page[T]).mapWritable)
}

// newReportPage creates a zeroed page that only client processes write. See page.inUse.
func newReportPage[T any](name string) (page[T], error) {
	return createPage[T](name, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK, (*page[T]).mapReadOnly)
}

func createPage[T any](name string, seals int, mapPage func(*page[T]) error) (_ page[T], err error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return page[T]{}, fmt.Errorf("create page %s: %w", name, err)
	}
	p := page[T]{file: os.NewFile(uintptr(fd), name)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := unix.Ftruncate(fd, tokenwire.PageSize); err != nil {
		return p, fmt.Errorf("size page %s: %w", name, err)
	}
	head := tokenwire.NewPageHead()
	if _, err := unix.Pwrite(fd, unsafe.Slice((*byte)(unsafe.Pointer(&head)), unsafe.Sizeof(head)), 0); err != nil {
		return p, fmt.Errorf("write page %s: %w", name, err)
	}
	if err := mapPage(&p); err != nil {
		return p, fmt.Errorf("map page %s: %w", name, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return p, fmt.Errorf("seal page %s: %w", name, err)
	}
	p.at = (*T)(unsafe.Pointer(&p.memory[0]))
	return p, nil
}

func (p *page[T]) mapWritable() (err error) {
	p.memory, err = unix.Mmap(int(p.file.Fd()), 0, tokenwire.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

// mapReadOnly maps the page through a descriptor that is open for reading only: the kernel treats any other shared mapping as writable.
func (p *page[T]) mapReadOnly() error {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	p.memory, err = unix.Mmap(fd, 0, tokenwire.PageSize, unix.PROT_READ, unix.MAP_SHARED)
	return err
}

// inUse reports whether a process has the page mapped and so can change it. Once it has returned false, no process can map the page any more:
// it succeeds in sealing the page against writing, which the kernel permits only while there are no writable mappings. The page must be from
// newReportPage. The call takes up to 0.2 s if a process has the page pinned for input or output. An error means that the page cannot tell: a
// process may add seals too, as the seal that prevents that (F_SEAL_SEAL) would stop the server as well.
func (p *page[T]) inUse() (bool, error) {
	_, err := unix.FcntlInt(p.file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	return false, err
}

// closeFile closes the file descriptor of the page and keeps the mapping.
func (p *page[T]) closeFile() {
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// close closes the file descriptor and unmaps the page, which must not be used afterwards.
func (p *page[T]) close() {
	p.closeFile()
	if p.memory != nil {
		_ = unix.Munmap(p.memory) // unmapping a whole mapping cannot fail
		p.at, p.memory = nil, nil
	}
}
