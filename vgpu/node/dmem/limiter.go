// Package dmem lets the driver itself limit the device memory of a cgroup. A program can avoid the hook, and drop the limit of
// MPS by its environment; it cannot avoid this (NVIDIA MPS, MPS v3 Memory Partitioning). It takes driver 615 and version 2
// of cgroups, and is not there for MIG instances. Managed memory counts as the host's.
package dmem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrMissing says that this machine has no such limits.
var ErrMissing = errors.New("the driver has no memory limits for cgroups")

// Limiter sets the limits by the driver's own program: only the driver knows how they are kept.
type Limiter struct {
	Program string // empty: nvidia-smi
	Mount   string // of the cgroups; empty: /sys/fs/cgroup
}

func (l Limiter) mount() string { return cmp.Or(l.Mount, "/sys/fs/cgroup") }

// Available says whether there are such limits; the error is ErrMissing if not, and another where the driver does not answer.
func (l Limiter) Available(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(l.mount(), "cgroup.controllers")); err != nil {
		return fmt.Errorf("%w: version 2 of cgroups is not mounted on %s", ErrMissing, l.mount())
	}
	_, err := l.run(ctx, "--help")
	if err == nil || errors.Is(err, errSilent) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrMissing, err)
}

// Limit limits the memory of a GPU that the processes of a cgroup have together, and gives the limit that the driver then tells.
// The cgroup is the container's own: one that is made below it without a limit would have none. Nothing is reserved (the soft limit
// is 0): a reservation would outlive the cgroup in those above it.
func (l Limiter) Limit(ctx context.Context, cgroup, gpu string, limit share.Bytes) (share.Bytes, error) {
	where := []string{"--namespace", filepath.Join(l.mount(), cgroup), "-i", gpu}
	mib := strconv.FormatInt(int64((limit+share.MiB-1)/share.MiB), 10)
	if _, err := l.run(ctx, append([]string{"--set", "--soft-limit", "0", "--hard-limit", mib}, where...)...); err != nil {
		return 0, err
	}
	text, err := l.run(ctx, append([]string{"--get"}, where...)...)
	if err != nil {
		return 0, err
	}
	return hardLimit(text)
}

// hardLimit reads a line such as "hard limit: 8192 MiB".
func hardLimit(text string) (share.Bytes, error) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "hard limit" {
			continue
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		mib, err := strconv.ParseInt(number, 10, 64)
		if err == nil && unit == "MiB" && mib > 0 && mib <= int64(share.MaxMemory/share.MiB) {
			return share.Bytes(mib) * share.MiB, nil
		}
	}
	return 0, fmt.Errorf("the driver tells no hard limit: %.200q", text)
}

// answerLimit is how long the program may take. One that hangs in the driver cannot be ended: nobody must wait for it.
const answerLimit = 10 * time.Second

var errSilent = errors.New("no answer")

func (l Limiter) run(ctx context.Context, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, cmp.Or(l.Program, "nvidia-smi"), append([]string{"memory-limits"}, arguments...)...)
	cmd.WaitDelay = 100 * time.Millisecond
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("nvidia-smi memory-limits: %w: %w", errSilent, ctx.Err())
	}
	if err != nil {
		return "", fmt.Errorf("nvidia-smi memory-limits: %w: %.200s", err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
