package cluster_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/node/store"
)

// podKilled: if a program with mapped weights is killed, its own memory is free at once, and the shared weights stay. The pod that replaces it maps
// them again.
func (w *weighing) podKilled(t *testing.T) {
	const name = "shared-6"
	before := w.used(t)
	private := (before - resnextWeights) / 7
	pod := w.ready(t, "default", name)
	for _, pid := range pidsOf(t, pod) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.WaitPod(w.ctx, name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed }); err != nil {
		t.Fatal(err)
	}
	w.waitUsed(t, before-private)
	w.checkLedger(t)
	if err := w.Client().CoreV1().Pods("default").Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitGrants(w.ctx, t, w.node, 6)
	w.create(w.ctx, t, w.server(name, "resnext", resnextWeights, resnextWorkspace, resnextShared, w.declared(t, "resnext", resnextWeights)))
	w.sharing(t)
	w.waitUsed(t, before)
	w.checkLedger(t)
}

// storeKilled: when the store is killed, programs keep the weights that they have mapped, and these remain counted.
func (w *weighing) storeKilled(t *testing.T) {
	w.killStore(t, func() {})
}

// bothKilled: the next agent finds that the store has ended as well, and starts another one.
func (w *weighing) bothKilled(t *testing.T) {
	w.killStore(t, func() {
		w.agent.Kill()
		w.sharing(t)
		w.agent.start(w.ctx, t)
	})
}

// killStore kills the store, calls also, and waits for another store. The programs that share the weights must not notice.
func (w *weighing) killStore(t *testing.T, also func()) {
	t.Helper()
	_, control := w.storeOf("default")
	before, used := w.pidOf(t, control), w.used(t)
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	also()
	w.waitAnotherStore(t, control, before)
	w.sharing(t)
	if got := w.used(t); got != used {
		t.Errorf("without the store %.0f MiB are in use, before %.0f", got, used)
	}
	w.checkLedger(t)
}

// waitAnotherStore waits until a store runs in place of the one with PID before.
func (w *weighing) waitAnotherStore(t *testing.T, control store.Control, before int) {
	t.Helper()
	err := wait.PollUntilContextCancel(w.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		return w.pidOf(t, control) != before, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitUsed waits until the driver counts this much used memory, in MiB.
func (w *weighing) waitUsed(t *testing.T, want float64) {
	t.Helper()
	got := -1.
	err := wait.PollUntilContextTimeout(w.ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		got = w.used(t)
		return near(got, want), nil
	})
	if err != nil {
		t.Errorf("%.0f MiB are in use, want %.0f: %v", got, want, err)
	}
}
