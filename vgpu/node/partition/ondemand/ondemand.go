// Package ondemand offers places on GPUs in MIG mode, and makes an instance in one when a container is about to have it. What
// gshare has made there is not offered by itself: a place is the slice, whether its instance exists or not, so what a node
// offers never changes with the instances.
package ondemand

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// GPU is one whose instances may be changed.
type GPU struct {
	UUID     string
	Profiles []string // that are offered; empty: all without media engines, of which a GPU has one set
	// Open takes over what an earlier agent left, and gives the driver's own model of the GPU. It may hang as long as a driver does.
	Open func() (*partition.Manager, *mig.Model, error)
}

// What keeps a container from its instance for a while.
var (
	ErrClosed = errors.New("the MIG instances of the GPU are not known yet")
	ErrMaking = errors.New("the MIG instance is being made") // which takes a second or two

	errUnlisted = errors.New("the driver does not list the MIG instance that was made")
)

// asked is how long an instance that nobody holds waits for who asked for it.
const asked = 30 * time.Second

// Source is a source of devices with places on some of them. It serves concurrent callers; those of UUID, Make and Hold never
// wait for the driver.
type Source struct {
	gpu.Source

	mu    sync.Mutex       // guards the following
	gpus  []*device        // which stay the same ones
	made  map[string]*made // by place
	holds []string         // places that containers have
}

// device is a GPU and what is known of it.
type device struct {
	GPU
	manager *partition.Manager // nil: it is not open yet
	model   *mig.Model
	why     error // it is not: what the last try has met

	ours []partition.Instance // those that gshare has made, at the last look
	held []string             // the source's, in what named gives
}

// made is an instance that was asked for.
type made struct {
	gpu    *device
	done   bool
	err    error
	uuid   string
	device gpu.Device // as it was listed with the instance; zero: it was not yet
	asked  time.Time  // zero: a container has it
	since  time.Time  // when that was done
}

// New gives a source that changes the instances of the given GPUs when it is asked to, once they are open.
func New(source gpu.Source, gpus []GPU) *Source {
	s := &Source{Source: source, made: map[string]*made{}}
	for _, g := range gpus {
		s.gpus = append(s.gpus, &device{GPU: g})
	}
	return s
}

// of gives the GPU that a place is on; nil where a slice is none. The caller holds the lock.
func (s *Source) of(id string) *device {
	for _, g := range s.gpus {
		if strings.HasPrefix(id, prefix(g.UUID)) {
			return g
		}
	}
	return nil
}
