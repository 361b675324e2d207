package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/process"
)

// crashStores is set in the environment of an agent that kills itself if it runs model stores.
const crashStores = "GSHARE_TEST_CRASH_STORES"

// TestKilledBetweenStepsOfStores kills the agent at steps of the grants of pods that declare weights: when it is recorded what they declare, before and
// after their store serves, and when they are released. The next agent has one store for each slice that a pod has, and none is left over.
func TestKilledBetweenStepsOfStores(t *testing.T) {
	t.Parallel()
	stride := 23 // few: each is a play of some seconds
	if *full {
		stride = 1
	}
	killBetweenSteps(t, stride, 48, func(at int) (deaths int, err error) { // three instances are made, and two removed
		l, err := newCrashNode(t.Context(), at, false, true)
		if err != nil {
			return 0, err
		}
		defer func() {
			l.close()
			err = errors.Join(err, l.endStores())
		}()
		err = l.playStores()
		return l.deaths, err
	})
}

// playStores starts and ends pods that declare weights, on two slices.
func (l *crashNode) playStores() error {
	for _, step := range []func() error{
		func() error { return l.begin("stays", "a.c1m1.0") },
		func() error { return l.untilStores(1) },
		func() error { return l.begin("other", "a.c3m4.4") },
		func() error { return l.untilStores(2) },
		func() error { return l.end("other", 1) },
		func() error { return l.untilStores(1) },
		func() error { return l.begin("next", "a.c1m1.5") },
		func() error { return l.untilStores(2) },
		func() error { return l.end("next", 1) },
		func() error { return l.end("stays", 0) },
		func() error { return l.untilStores(0) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// untilStores blocks until so many stores run, and have a folder.
func (l *crashNode) untilStores(want int) error {
	return l.until(fmt.Sprint(want, " stores"), func(context.Context) bool {
		folders, err := os.ReadDir(filepath.Join(l.dir, "stores"))
		return (err == nil || errors.Is(err, os.ErrNotExist)) && len(folders) == want && len(l.storePIDs()) == want
	})
}

// storePIDs returns the PIDs of the stores of the node, whichever agent has started them.
func (l *crashNode) storePIDs() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := process.ReadFile(pid, "cmdline")
		if err == nil && strings.Contains(string(line), "\x00store\x00") && strings.Contains(string(line), l.dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endStores ends the stores that are left, of which there should be none.
func (l *crashNode) endStores() (err error) {
	for _, pid := range l.storePIDs() {
		err = fmt.Errorf("store %d is left", pid)
		if p, found := os.FindProcess(pid); found == nil {
			_ = p.Kill()
		}
	}
	return err
}
