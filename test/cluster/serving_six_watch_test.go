package cluster_test

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// turnTimes records how long turns took to begin and to end.
type turnTimes struct {
	mu             sync.Mutex
	begins, leaves []change
	pods           map[string]turnSeen
}

// change is the time from when a level was wanted of a pod until the pod had reached it.
type change struct {
	wanted time.Time
	took   time.Duration
}

// turnSeen is what a watch has seen of a pod.
type turnSeen struct {
	wanted  residency.Level
	since   time.Time // when the wanted level changed
	reached bool
}

func (w *turnTimes) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begins, w.leaves = nil, nil
}

// times returns how long the changes took, counted from the controller's decisions, and the mean time until a decision was written. Decisions are made once
// per second, always at the same moment of the second. That moment follows from when wanted levels were written: they are written some time after it, but
// never shortly before it. So the longest interval of a second without writes ends at that moment.
func (w *turnTimes) times() (begins, leaves []time.Duration, written time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var moments []time.Duration
	all := slices.Concat(w.begins, w.leaves)
	for _, c := range all {
		moments = append(moments, time.Duration(c.wanted.Nanosecond()))
	}
	slices.Sort(moments)
	decided, longest := time.Duration(0), time.Duration(-1)
	for i, m := range moments {
		before := moments[(i+len(moments)-1)%len(moments)]
		if gap := (m - before + time.Second) % time.Second; gap > longest {
			decided, longest = m, gap
		}
	}
	from := func(changes []change) (took []time.Duration) {
		for _, c := range changes {
			late := (time.Duration(c.wanted.Nanosecond()) - decided + time.Second) % time.Second
			took, written = append(took, late+c.took), written+late/time.Duration(len(all))
		}
		return took
	}
	return from(w.begins), from(w.leaves), written
}

// watchTurns watches the pods of functions, and records their turns.
func (s *served) watchTurns(t *testing.T) *turnTimes {
	t.Helper()
	seen := &turnTimes{pods: map[string]turnSeen{}}
	ctx, stop := context.WithCancel(s.ctx)
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w, err := s.Client().CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: api.LabelFunction})
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			for e := range w.ResultChan() {
				if p, is := e.Object.(*v1.Pod); is {
					seen.look(p, time.Now())
				}
			}
		}
	}()
	return seen
}

func (w *turnTimes) look(p *v1.Pod, now time.Time) {
	wanted, reached, err := kube.ResidencyOf(p)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	one, found := w.pods[p.Name]
	if !found || one.wanted.Serves() != wanted.Level.Serves() {
		one = turnSeen{wanted: wanted.Level, since: now, reached: !found}
	}
	_, ready := api.Address(p)
	switch {
	case one.reached || !reached.Answers(wanted):
	case wanted.Level.Serves() && reached.Level.Serves() && ready:
		one.reached = true
		w.begins = append(w.begins, change{one.since, now.Sub(one.since)})
	case wanted.Level == residency.Warm && reached.Level == residency.Warm:
		one.reached = true
		w.leaves = append(w.leaves, change{one.since, now.Sub(one.since)})
	}
	w.pods[p.Name] = one
}

// Layout of the file of hook/fake/account.c, in which the fake driver counts the device memory of all processes of a machine.
const (
	accountProcesses = 64
	accountEntry     = 16 + 16*8 // PID, PID namespace, bytes of each device
	accountDriver    = 1 << 20   // the first byte that each process keeps locked
)

// watchDriverMemory continuously reads how much memory of a device the fake driver has given to processes, from the files NAME.memory in a folder. most is
// the largest amount so far.
func watchDriverMemory(t *testing.T, folder string) (most *atomic.Int64) {
	most = &atomic.Int64{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			files, err := filepath.Glob(filepath.Join(folder, "*.memory"))
			if err != nil {
				t.Error(err)
				return
			}
			for _, name := range files {
				bytes, err := driverMemory(name)
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), bytes))
			}
			time.Sleep(20 * time.Millisecond) // between polls
		}
	}()
	return most
}

// driverMemory returns how many bytes of the first device running processes have.
func driverMemory(name string) (sum int64, err error) {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close() // which also releases the lock
	guard := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, &guard); err != nil {
		return 0, err
	}
	all := make([]byte, accountProcesses*accountEntry)
	if n, err := file.ReadAt(all, 0); err == io.EOF && n == 0 {
		return 0, nil // the file was just created
	} else if err != nil {
		return 0, err
	}
	for i := range accountProcesses {
		entry := all[i*accountEntry:]
		if binary.NativeEndian.Uint32(entry) == 0 {
			continue
		}
		running := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(accountDriver | i), Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &running); err != nil {
			return 0, err
		}
		if running.Type != unix.F_UNLCK {
			sum += int64(binary.NativeEndian.Uint64(entry[16:]))
		}
	}
	return sum, nil
}
