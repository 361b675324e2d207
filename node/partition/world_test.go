package partition_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/nvml"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// world plays a scenario on one GPU, with disturbances at some moments. The outcome must be that of the undisturbed scenario, including the order
// of the steps on the GPU, so that no step is lost or executed twice. The lines of a scenario are "obtain 1g.10gb@6", "release 0" (the first
// obtained one that is not released), "start 0", "stop 0", "foreign 3g.40gb@4 1 2", "restart" and "reboot".
type world struct {
	gpu      *fakemig.GPU
	device   device // the GPU as its agent reaches it
	intents  bool   // the journal has intents
	disk     []byte
	boots    int
	manager  *partition.Manager
	obtained []partition.Instance // by containers
	foreign  []mig.Instance
	answers  []string

	disturbance
	moment int   // the next one
	at     []int // disturbed moments
}

// disturbance is what happens at a disturbed moment. There is a moment before and after each step and each write of the journal.
type disturbance func() error

var errDisturbed = errors.New("disturbed")

type crash struct{}

var (
	crashes  disturbance = func() error { panic(crash{}) }
	failures disturbance = func() error { return errDisturbed } // the result; the operation has taken effect or not
)

// pass counts a moment, and disturbs it if it is to be disturbed.
func (w *world) pass() error {
	disturbed := slices.Contains(w.at, w.moment)
	w.moment++
	if !disturbed {
		return nil
	}
	return w.disturbance()
}

// around executes an operation between two moments.
func (w *world) around(do func() error) error {
	if err := w.pass(); err != nil {
		return err
	}
	return errors.Join(do(), w.pass())
}

type device interface {
	partition.Device
	Model() *mig.Model
}

// setup completes a world with its device.
type setup func(w *world) error

func direct(w *world) error {
	w.device, w.intents = w.gpu, true
	return nil
}

func overNVML(w *world) error {
	d, err := nvml.Find(w.gpu.NVML(), uuid)
	if err == nil {
		w.device, w.intents = d, true
	}
	return err
}

func forgetful(w *world) error {
	w.device = w.gpu
	return nil
}

// mortal is the GPU and the disk of a world as its agent sees them.
type mortal struct{ *world }

func (m mortal) Instances() ([]partition.Instance, error) { return m.device.Instances() }

func (m mortal) Apply(s geometry.Step) error {
	return m.around(func() error {
		if removes := s.Action == geometry.DestroyCompute || s.Action == geometry.DestroyGPU; removes && m.stays(s.Instance) {
			return fmt.Errorf("%s of an instance in use", s)
		}
		return m.device.Apply(s)
	})
}

// stays reports whether a container has an instance, or others created it.
func (w *world) stays(at mig.Instance) bool {
	return slices.Contains(w.foreign, at) || slices.ContainsFunc(w.obtained, func(i partition.Instance) bool { return i.Instance == at })
}

func (m mortal) Load() ([]byte, error) { return m.disk, nil }

func (m mortal) Save(text []byte) error {
	if !m.intents && strings.Contains(string(text), `"intent":{`) {
		return nil
	}
	return m.around(func() error { m.disk = text; return nil })
}

// play plays a scenario.
func play(m *mig.Model, script []string, setup setup, d disturbance, at ...int) (w *world, err error) {
	w = &world{gpu: fakemig.New(uuid, m), disturbance: d, at: at}
	if err := setup(w); err != nil {
		return w, err
	}
	for _, line := range script {
		for again := true; again; {
			again, err = w.try(line)
			if err != nil {
				return w, fmt.Errorf("%s: %w", line, err)
			}
		}
	}
	return w, nil
}

// try plays a line. It returns true if the line has to be played again, by a new agent after a crash and by the same one after a failure.
func (w *world) try(line string) (again bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			w.manager, again = nil, true
		}
	}()
	if w.manager == nil {
		if w.manager, err = w.open(); errors.Is(err, errDisturbed) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	err = w.line(strings.Fields(line))
	if errors.Is(err, errDisturbed) {
		return true, nil
	}
	return false, err
}

func (w *world) open() (*partition.Manager, error) {
	agent := mortal{w}
	m, err := partition.Open(partition.Config{Device: agent, UUID: uuid, Store: agent, BootID: fmt.Sprint("boot ", w.boots)})
	for _, i := range w.obtained {
		if err == nil {
			_, err = m.Hold(i.Instance)
		}
	}
	return m, err
}

func (w *world) line(words []string) error {
	switch words[0] {
	case "obtain":
		return w.obtain(words[1])
	case "foreign":
		return w.createForeign(words[1:])
	case "restart":
		w.manager = nil
		return nil
	case "reboot":
		w.gpu.Reboot()
		w.boots, w.manager, w.obtained, w.foreign = w.boots+1, nil, nil, nil
		return nil
	}
	var n int
	if fmt.Sscan(words[1], &n); n >= len(w.obtained) {
		return nil // it was refused
	}
	i := w.obtained[n]
	switch words[0] {
	case "start":
		w.gpu.Start(i.Instance)
	case "stop":
		w.gpu.Stop(i.Instance)
	case "release":
		w.manager.Release(i.UUID)
		w.obtained = slices.Delete(w.obtained, n, n+1)
	}
	return nil
}

func (w *world) obtain(text string) error {
	at, err := parsePlacement(w.device.Model(), text)
	if err != nil {
		return err
	}
	i, err := w.manager.Obtain(at)
	switch {
	case errors.Is(err, partition.ErrInsufficientResources) && !errors.Is(err, errDisturbed):
		w.answers = append(w.answers, text+" refused")
		return nil
	case err != nil:
		return err
	}
	w.answers = append(w.answers, fmt.Sprintf("%s@%d", i.Profile.Name, i.Start))
	w.obtained = append(w.obtained, i)
	return nil
}

// createForeign creates an instance as others would.
func (w *world) createForeign(words []string) error {
	at, err := parsePlacement(w.device.Model(), words[0])
	if err != nil {
		return err
	}
	w.foreign = append(w.foreign, at)
	sizes := make([]int, len(words)-1)
	for n := range sizes {
		fmt.Sscan(words[1+n], &sizes[n])
	}
	return w.gpu.CreateForeign(at, sizes...)
}

// outcome describes the results of the requests, the steps that took effect, and the journal.
func (w *world) outcome() string {
	return fmt.Sprintf("answers %q\nsteps %q\ndisk %s", w.answers, w.gpu.Steps(), w.disk)
}
