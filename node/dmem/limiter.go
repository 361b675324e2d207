// Package dmem makes the driver limit the device memory of a cgroup (NVIDIA MPS, MPS v3 Memory Partitioning). Unlike the limits of the hook
// and of MPS, a program cannot bypass this one. It needs driver 615 and cgroup v2, and does not support MIG instances. Managed memory counts
// as memory of the host.
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

// ErrMissing is returned if the GPU driver cannot limit device memory by cgroup.
var ErrMissing = errors.New("the driver has no memory limits for cgroups")

// Limiter sets limits of device memory for cgroups by running nvidia-smi.
type Limiter struct {
	Program string // empty: nvidia-smi
	Mount   string // of the cgroups; empty: /sys/fs/cgroup
}

func (l Limiter) mount() string { return cmp.Or(l.Mount, "/sys/fs/cgroup") }

// Available returns nil if the driver can limit device memory by cgroup, ErrMissing if it cannot, and another error if it does not answer.
func (l Limiter) Available(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(l.mount(), "cgroup.controllers")); err != nil {
		return fmt.Errorf("%w: cgroup v2 is not mounted on %s", ErrMissing, l.mount())
	}
	_, err := l.run(ctx, "--help")
	if err == nil || errors.Is(err, errNoAnswer) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrMissing, err)
}

// Limit limits the device memory that all processes of a cgroup together use on a GPU, and returns the limit that the driver confirms. The
// cgroup must be the container's own, since the container could leave cgroups below it. The soft limit is set to 0: a reservation would
// outlive the cgroup in the cgroups above it.
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

// hardLimit parses the limit in output of nvidia-smi, on a line such as "hard limit: 8192 MiB".
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
	return 0, fmt.Errorf("parse hard limit of the driver: %.200q", text)
}

// answerTimeout is how long nvidia-smi may run before it is killed. If it hangs in the driver, it does not end even then.
const answerTimeout = 10 * time.Second

var errNoAnswer = errors.New("no answer")

func (l Limiter) run(ctx context.Context, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, cmp.Or(l.Program, "nvidia-smi"), append([]string{"memory-limits"}, arguments...)...)
	cmd.WaitDelay = 2 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("nvidia-smi memory-limits: %w: %w", errNoAnswer, ctx.Err())
	}
	if err != nil {
		return "", fmt.Errorf("nvidia-smi memory-limits: %w: %.200s", err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
