package standalone

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// runServer gives runs what they need to use their shares: a directory with a record, a cgroup, sockets of the token server and an MPS
// daemon. It has no state of its own; the granter calls it for one run at a time.
type runServer struct {
	*Options
	devices     *deviceSet
	enforcement *enforcementReporter
	slices      *core.Slices
}

func (s *runServer) runsDir() string { return filepath.Join(s.Config.Directory, "runs") }

// recordsDir returns the directory with a second copy of each run's record. If the first one is damaged, or deleted with the run's directory,
// the run still keeps its share.
func (s *runServer) recordsDir() string { return filepath.Join(s.Config.Directory, "records") }

func (s *runServer) copyOf(id string) string { return filepath.Join(s.recordsDir(), id+recordSuffix) }

func (s *runServer) dirOf(id string) string { return filepath.Join(s.runsDir(), id) }

// start creates the cgroup of a new run, saves its record and opens its sockets. After an error it removes what it has created.
func (s *runServer) start(r *run, empty func()) (err error) {
	p := r.process
	defer func() {
		if err != nil {
			s.cleanUp(r)
		}
	}()
	if r.StartTime, err = process.StartTime(p.PID); err != nil {
		return err
	}
	if err := s.setUp(r); err != nil {
		return err
	}
	if !p.Alive() {
		return fmt.Errorf("process %d has ended", p.PID)
	}
	if err := s.save(r); err != nil {
		return err
	}
	if r.container, err = s.prepare(r, empty); err != nil {
		return err
	}
	return r.container.Listen()
}

// setUp creates the cgroup of a run and computes its enforcement status. Without a cgroup the run is identified by its user only.
func (s *runServer) setUp(r *run) (err error) {
	if s.Groups != nil {
		if r.Cgroup, err = s.Groups.enter(r.PID, r.ID); err != nil {
			s.Log.Warn("failed to create cgroup, run is identified by user only", "run", r.ID, "error", err)
		}
	}
	r.Enforcement = s.enforcement.statusOf(r)
	return nil
}

// cleanUp closes the sockets of a run and removes its directory and cgroup. Errors are logged.
func (s *runServer) cleanUp(r *run) {
	if r.container != nil {
		if err := r.container.Close(); err != nil {
			s.Log.Error("failed to close sockets of run", "run", r.ID, "error", err)
		}
	}
	if err := errors.Join(os.RemoveAll(s.dirOf(r.ID)), os.RemoveAll(s.copyOf(r.ID))); err != nil {
		s.Log.Error("failed to remove files of run", "run", r.ID, "error", err)
	}
	if s.Groups != nil && r.Cgroup != "" {
		s.Groups.remove(r.Cgroup)
	}
}

// save writes the record of a run, and its second copy.
func (s *runServer) save(r *run) error {
	saved := r.record
	saved.Version = recordVersion
	text, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dirOf(r.ID), 0o755); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(s.copyOf(r.ID), text, 0o644); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(s.dirOf(r.ID), recordName), text, 0o644)
}

// ids returns the IDs of all runs of earlier agents: those that have a directory, a record, or both.
func (s *runServer) ids() (ids []string, err error) {
	dirs, err := os.ReadDir(s.runsDir())
	if err != nil {
		return nil, err
	}
	for _, entry := range dirs {
		if entry.IsDir() { // others are not the agent's
			ids = append(ids, entry.Name())
		}
	}
	copies, err := os.ReadDir(s.recordsDir())
	if err != nil {
		return nil, err
	}
	for _, entry := range copies {
		if id, ok := strings.CutSuffix(entry.Name(), recordSuffix); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// load reads the record of a run, or its second copy.
func (s *runServer) load(id string) (*run, error) {
	r, err := s.read(id, filepath.Join(s.dirOf(id), recordName))
	if err == nil {
		return r, nil
	}
	copied, second := s.read(id, s.copyOf(id))
	if second != nil {
		return nil, errors.Join(err, second)
	}
	s.Log.Warn("the record of a run is damaged, and its copy is used", "run", id, "error", err)
	return copied, nil
}

// read reads a record of a run from a file.
func (s *runServer) read(id, file string) (*run, error) {
	text, err := atomicfile.TryRead(file)
	if err != nil {
		return nil, err
	}
	r := &run{}
	if r.record, err = decodeRecord(text); err != nil {
		return nil, err
	}
	if r.ID != id {
		return nil, fmt.Errorf("the record is of run %.20q", r.ID)
	}
	return r, nil
}

// reconstruct returns a run whose record is lost. Its share is the largest that it could be: all of its devices, or of all devices if its
// policy file is lost too.
func (s *runServer) reconstruct(id string) *run {
	devices, err := tokenserver.PolicyDevices(s.dirOf(id))
	devices = slices.DeleteFunc(devices, func(uuid string) bool { return s.devices.sliceByUUID(uuid).ID == "" })
	if err != nil || len(devices) == 0 {
		devices = nil
		for _, slice := range s.devices.empty.Slices {
			devices = append(devices, string(slice.ID))
		}
	}
	return &run{dead: true, lost: true, unserved: "its record cannot be read", record: record{
		ID: id, Started: time.Now(), Devices: devices, Class: share.Exclusive, Priority: share.BestEffort,
		Share: savedShare{share.Whole, share.Whole, share.Whole, share.Whole, s.devices.sliceByUUID(devices[0]).Memory},
	}}
}

// isUsed reports whether processes use a run. The token server knows those of a run that it serves. Otherwise they are looked for in the run's
// cgroup or, if it has none, by the directory that their environment names.
func (s *runServer) isUsed(r *run) bool {
	if r.container != nil {
		return r.container.InUse()
	}
	groups := []string{r.Cgroup}
	if s.Groups != nil && r.lost {
		groups = s.Groups.find(r.ID)
	}
	if s.Groups != nil && len(groups) > 0 && groups[0] != "" {
		return slices.ContainsFunc(groups, s.Groups.isPopulated)
	}
	used, err := process.StartedWith(s.directoryVariable(r.ID))
	return used || err != nil
}

func (s *runServer) directoryVariable(id string) string { return "GSHARE_DIR=" + s.dirOf(id) }

// prepare reserves the shares of a run at the token server, which does not accept processes of the run before Listen. empty is called when
// the last of their connections is closed. Devices that have been lost since the run began are left out; the run keeps the others.
func (s *runServer) prepare(r *run, empty func()) (*tokenserver.Container, error) {
	container, err := s.slices.Reserve(r.holder(), tokenserver.Spec{
		Dir: s.dirOf(r.ID), Owner: &r.UID, Admit: r.admit, Launcher: r.PID,
		Empty: func() { go empty() }, // in the background: it must not wait for the connection that is ending
	})
	if err != nil {
		return nil, err
	}
	if r.SMLimit != 0 {
		err = container.Resize(r.SMLimit)
	}
	if r.Quota != 0 {
		err = errors.Join(err, container.Narrow(r.Quota))
	}
	if err != nil {
		container.Suspend()
		return nil, err
	}
	return container, nil
}

// retainMPS starts the MPS daemons of the devices that runs share and stops all others.
func (s *runServer) retainMPS(runs []*run) {
	var holders []core.Holder
	for _, r := range runs {
		holders = append(holders, *r.holder())
	}
	s.slices.RetainMPS(holders)
}

// grantOf returns the grant of a run: the environment for its program, and whether the program identifies itself through an inherited
// socket.
func (s *runServer) grantOf(r *run) *control.Grant {
	environment := []string{s.directoryVariable(r.ID)}
	environment = append(environment, "CUDA_VISIBLE_DEVICES="+strings.Join(r.Devices, ","))
	environment = append(environment, s.Environment...)
	if r.Class != share.Exclusive {
		environment = append(environment, mps.ClientEnvironment(r.pipe, share.Share(r.Share))...)
	}
	if mps.HasLowPriority(r.Class, r.Priority) {
		environment = append(environment, mps.LowPriorityVariable)
	}
	return &control.Grant{ID: r.ID, Dir: s.dirOf(r.ID), Environment: environment, Inherit: r.Cgroup == "", Enforcement: r.Enforcement}
}
