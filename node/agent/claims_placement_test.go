package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestClaimsOnDemand: a claim for a placement gets exactly its instance. The instance is created while the claim is prepared, can be shared through MPS,
// outlives the agent, and is removed for an overlapping placement once the claim is given back.
func TestClaimsOnDemand(t *testing.T) {
	t.Parallel()
	r, g := newPartitioned(t, func(p partitioned) gpu.Source { return p }, func() {}, func(o *Options) {
		o.Config.Tenancy, o.Config.Kubernetes.ResourceClaims = "mixed", []string{"GPU-a"}
	})
	r.wait("the placements", func() bool { return len(r.OfferedToClaims().Slices) == 9 })
	if n := len(r.devices.currentInventory().Published().Slices); n != 0 {
		t.Errorf("%d slices are published for gshare-scheduler, want 0", n)
	}
	want := func(pod, slice string, sm share.PerMille, memory share.Bytes, instance string) (device string) {
		t.Helper()
		_, device, err := r.prepare(pod, slice, sm, memory)
		if err != nil {
			t.Fatal(err)
		}
		if spec := r.specOf(device); !strings.Contains(spec, "CUDA_VISIBLE_DEVICES="+instance+`"`) ||
			strings.Contains(spec, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50") != (sm < share.Whole) {
			t.Errorf("%s: %s", pod, spec)
		}
		return device
	}
	first := want("a", "a.c3m4.4", share.Whole, 40<<30, "MIG-GPU-a-0-0")
	want("b", "a.c1m1.2", 500, 4<<30, "MIG-GPU-a-1-0")
	want("c", "a.c1m1.2", 500, 6<<30, "MIG-GPU-a-1-0")
	made := slices.Concat(made("3g.40gb", 4), made("1g.10gb", 2))
	r.acted(g, made)

	pod, overlapping := podWithClaim("d", "main")
	r.kubelet.AddPod(pod)
	for limit := time.Second; ; limit *= 2 { // it waits for the end of the first claim
		short, cancel := context.WithTimeout(r.ctx, limit)
		_, err := r.PrepareClaim(short, overlapping, partOf("a.c1m1.5", share.Whole, 10<<30))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && r.ctx.Err() == nil { // too short for one attempt on a busy machine
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "cannot be made beside") {
			t.Errorf("an instance that overlaps: %v", err)
		}
		break
	}
	r.acted(g, made)

	r.stop()
	r.start()
	if again := want("a", "a.c3m4.4", share.Whole, 40<<30, "MIG-GPU-a-0-0"); again != first {
		t.Errorf("prepared again after a restart: %s, want %s", again, first)
	}
	r.acted(g, made)
	if err := r.UnprepareClaim(r.ctx, "claim-a"); err != nil {
		t.Fatal(err)
	}
	r.acted(g, made) // it is kept for the next claim
	want("d", "a.c1m1.5", share.Whole, 10<<30, "MIG-GPU-a-0-0")
	r.acted(g, slices.Concat(made, removed("3g.40gb", 4), []string{"create GPU instance 1g.10gb at 5", "create compute instance 1g.10gb at 5"}))
}

// crashClaims is set in the environment of an agent that kills itself if its GPU is for resource claims.
const crashClaims = "GSHARE_TEST_CRASH_CLAIMS"

// Directories through which a test and the agent that it kills communicate; the agent has no kubelet for its claims. They have a file for each claim,
// with the name of its pod. The first contains the wanted claims, with the slice IDs; the second the prepared ones, with the CDI devices.
const (
	wantedClaims   = "wanted"
	preparedClaims = "prepared"
)

// serveWanted calls the agent as the kubelet would, until each wanted claim is prepared and all others are given back.
func (a *Agent) serveWanted(ctx context.Context, dir string) {
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if o := a.OfferedToClaims(); !o.Known || len(o.Slices) == 0 {
			continue
		}
		prepared := namesIn(filepath.Join(dir, preparedClaims))
		wanted := namesIn(filepath.Join(dir, wantedClaims))
		for _, pod := range wanted {
			if slices.Contains(prepared, pod) {
				continue
			}
			slice, err := os.ReadFile(filepath.Join(dir, wantedClaims, pod))
			if err != nil {
				continue // no longer wanted
			}
			_, claim := podWithClaim(pod, "main")
			device, err := a.PrepareClaim(ctx, claim, wholePlacement(string(slice)))
			if err == nil {
				err = writeWhole(filepath.Join(dir, preparedClaims, pod), device)
			}
			if err != nil {
				a.Log.Warn("failed to prepare a claim", "pod", pod, "error", err)
			}
		}
		for _, pod := range prepared {
			if slices.Contains(wanted, pod) {
				continue
			}
			_, claim := podWithClaim(pod, "main")
			err := a.UnprepareClaim(ctx, claim.UID)
			if err == nil {
				err = os.Remove(filepath.Join(dir, preparedClaims, pod))
			}
			if err != nil {
				a.Log.Warn("failed to take a claim back", "pod", pod, "error", err)
			}
		}
	}
}

func namesIn(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // empty if it does not exist
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// writeWhole writes a file atomically, so that no reader sees a part of it.
func writeWhole(name, text string) error {
	hidden := filepath.Join(filepath.Dir(name), "."+filepath.Base(name))
	return errors.Join(os.WriteFile(hidden, []byte(text), 0o600), os.Rename(hidden, name))
}

// wholePlacement returns what a claim for a whole placement on an A100 gets.
func wholePlacement(slice string) []draplugin.Part {
	var compute, memory, start int
	if _, err := fmt.Sscanf(slice, "a.c%dm%d.%d", &compute, &memory, &start); err != nil {
		panic(err)
	}
	return partOf(slice, share.Whole, share.Bytes(memory)*10<<30)
}

// beginClaim adds a pod with a claim for a placement, and waits until the claim is prepared with an instance.
func (l *crashNode) beginClaim(uid, slice string) error {
	pod, _ := podWithClaim(uid, "main")
	l.kubelet.AddPod(pod)
	for _, folder := range []string{wantedClaims, preparedClaims} {
		if err := os.MkdirAll(filepath.Join(l.dir, folder), 0o700); err != nil {
			return err
		}
	}
	if err := writeWhole(filepath.Join(l.dir, wantedClaims, uid), slice); err != nil {
		return err
	}
	return l.until("preparation for "+uid, func(context.Context) bool {
		device, err := os.ReadFile(filepath.Join(l.dir, preparedClaims, uid))
		return err == nil && l.hasInstance(string(device))
	})
}

// endClaim ends the pod of a claim, and waits until the claim is given back.
func (l *crashNode) endClaim(uid string) error {
	if err := os.Remove(filepath.Join(l.dir, wantedClaims, uid)); err != nil {
		return err
	}
	return l.until("end of the claim of "+uid, func(context.Context) bool {
		_, err := os.Stat(filepath.Join(l.dir, preparedClaims, uid))
		return errors.Is(err, os.ErrNotExist)
	})
}

// TestClaimsKilledBetweenSteps is TestKilledBetweenSteps for pods with claims, by the same source of instances and journal.
func TestClaimsKilledBetweenSteps(t *testing.T) {
	t.Parallel()
	stride := 23
	if *full {
		stride = 1
	}
	killBetweenSteps(t, stride, 72, func(at int) (int, error) { return playKilledAt(t.Context(), at, true) })
}
