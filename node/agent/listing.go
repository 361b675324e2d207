package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// processLister lists the processes that use the GPUs, and the libraries through which they do so. It is not safe for concurrent use.
type processLister struct {
	*Options
	metrics *metrics
	list    asyncCall[[]gpu.Process] // the driver's list
	failing bool                     // the last list failed

	libraries map[libraryKey]mappedLibrary // of processes of the last list
}

// libraryKey identifies a process whose libraries are read. The libraries are read again after the process has opened a session.
type libraryKey struct {
	pid       int
	startTime uint64
	session   bool
}

// mappedLibrary is the library through which a process was found to use the GPU without the hook, or none, why it has no hook, and for how many
// lists the result counts.
type mappedLibrary struct {
	name     string
	unhooked string
	reads    int // lists until the process is read again, if it has no such library
}

// libraryReads is the number of lists between two reads of the libraries of one process. A read takes up to a millisecond.
const libraryReads = 5

// current returns the processes that use the GPUs now. The list may be incomplete if the driver reports an error; ok is false if it is empty
// because of an error.
func (l *processLister) current(ctx context.Context) (processes []gpu.Process, ok bool) {
	processes, err := l.list.Await(ctx, l.Config.Kubernetes.WatchPeriod.Duration)
	switch {
	case ctx.Err() != nil:
		return nil, false
	case errors.Is(err, gpu.ErrNoGPU):
		err = nil // no GPU, so no process
	}
	l.metrics.countList(err)
	if err != nil && !l.failing {
		l.Log.Error("failed to list the processes on the devices", "error", err)
	}
	l.failing = err != nil
	return processes, err == nil || len(processes) > 0
}

// setLibraries sets, for each of these processes, the library through which it uses the GPU without the hook, and why it has no hook. It forgets
// all other processes.
func (l *processLister) setLibraries(processes []watchdog.Process) {
	before := l.libraries
	l.libraries = map[libraryKey]mappedLibrary{}
	for i := range processes {
		p := &processes[i]
		k := libraryKey{p.PID, p.StartTime, p.Session}
		found := before[k]
		if found.name == "" && found.reads == 0 {
			mapped, err := process.MappedLibraries(p.PID)
			found = mappedLibrary{name: watchdog.LibraryWithoutHook(slices.Values(mapped), p.Session), reads: libraryReads}
			if err == nil && !p.Session {
				found.unhooked = watchdog.WhyUnhooked(mapped)
			}
			if errors.Is(err, process.ErrTooLong) {
				found.name = cmp.Or(found.name, "some of more libraries than the agent reads")
			}
		}
		found.reads = max(0, found.reads-1)
		p.Library, p.Unhooked, l.libraries[k] = found.name, found.unhooked, found
	}
}
