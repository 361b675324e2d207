package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// realTime sets the scheduling class of the simulated devices, the agents and the pods' programs. In the normal class, each wake-up can be
// delayed by about 3 ms on a busy machine, which is long compared to a kernel.
func (a *agents) realTime(t *testing.T, pods []*v1.Pod, class uint32) {
	t.Helper()
	pids := []int{os.Getpid()}
	for _, agent := range a.of {
		pids = append(pids, agent.PID())
	}
	for _, pod := range pods {
		pids = append(pids, pidsOf(t, pod)...)
	}
	if err := setClasses(pids, class); errors.Is(err, unix.EPERM) {
		t.Skipf("the real-time class is not allowed here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func setClasses(pids []int, class uint32) error {
	for _, pid := range pids {
		if err := setClass(pid, class); err != nil {
			return err
		}
	}
	return nil
}

// realTimeGroups exists if each cgroup has its own real-time budget, in which case the root cgroup has all of it.
const realTimeGroups = "/sys/fs/cgroup/cpu/cpu.rt_runtime_us"

func setClass(pid int, class uint32) error {
	if _, err := os.Stat(realTimeGroups); err == nil {
		procs := filepath.Join(filepath.Dir(realTimeGroups), "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: class}
	if class != unix.SCHED_NORMAL {
		attributes.Priority = 1
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		if err := unix.SchedSetAttr(id, &attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
