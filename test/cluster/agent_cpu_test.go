package cluster_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/cluster/machine"
)

// tick is the unit of the times in /proc/PID/stat.
const tick = 10 * time.Millisecond

// cpuTime is the processor time that each program of the cluster has used.
type cpuTime []struct {
	name string
	time time.Duration
}

// cpu reads the processor time of the control plane's programs, of a node's programs, and of its agent.
func (a *agents) cpu(t *testing.T, node *cluster.Node) (all cpuTime) {
	t.Helper()
	for _, p := range []struct {
		name string
		*machine.Process
	}{
		{"etcd", a.Etcd}, {"API server", a.APIServer}, {"controllers", a.ControllerManager}, {"scheduler", a.Scheduler},
		{"kubelet", node.Kubelet}, {"containerd", node.Containerd}, {"agent", a.of[node.Name].Process},
	} {
		all = append(all, struct {
			name string
			time time.Duration
		}{p.name, timeOf(t, p.PID())})
	}
	return all
}

// timeOf returns the processor time of a process without its children.
func timeOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third field on (proc(5)); utime and stime are the 14th and 15th
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		t.Fatalf("stat of %d: %s", pid, text)
	}
	return time.Duration(user+system) * tick
}

// since returns the processor time used since an earlier measurement.
func (c cpuTime) since(before cpuTime) cpuTime {
	used := slices.Clone(c)
	for i := range used {
		used[i].time -= before[i].time
	}
	return used
}

func (c cpuTime) sum() (all time.Duration) {
	for _, p := range c {
		all += p.time
	}
	return all
}

func (c cpuTime) String() string {
	var text []string
	for _, p := range c {
		text = append(text, fmt.Sprintf("%s %.1f", p.name, p.time.Seconds()))
	}
	return strings.Join(text, ", ")
}
