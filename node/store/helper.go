package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// helperFile is the descriptor through which a helper gets the memory.
const helperFile = 3

// Helper returns a function that computes digests in helper processes. It runs the command with two more arguments, with which the process
// calls RunHelper. A helper needs a context on the device to read the memory. The context ends with the helper, so the store itself never
// has one.
func Helper(command ...string) func(ctx context.Context, memory *os.File, size, bytes share.Bytes) (rules.Digest, error) {
	return func(ctx context.Context, memory *os.File, size, length share.Bytes) (digest rules.Digest, _ error) {
		arguments := append(command[1:len(command):len(command)], strconv.FormatInt(int64(size), 10), strconv.FormatInt(int64(length), 10))
		cmd := exec.CommandContext(ctx, command[0], arguments...) // killed when ctx ends
		var failure bytes.Buffer
		cmd.ExtraFiles, cmd.Stderr = []*os.File{memory}, &failure
		// The kernel kills the helper when the thread that started it ends (Pdeathsig), so the thread must not end before the helper.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.Output()
		if err != nil {
			return digest, fmt.Errorf("%w: %s", err, bytes.TrimSpace(failure.Bytes()))
		}
		found, err := hex.DecodeString(string(bytes.TrimSpace(out)))
		if err != nil || len(found) != len(digest) {
			return digest, fmt.Errorf("the helper printed %.100q", out)
		}
		return rules.Digest(found), nil
	}
}

// RunHelper computes the digest of the memory that Helper has given to this process, and returns it in hexadecimal digits.
func RunHelper(arguments []string) (string, error) {
	if len(arguments) != 2 {
		return "", errors.New("want the bytes of the memory and of the weights")
	}
	size, err := strconv.ParseInt(arguments[0], 10, 64)
	length, err2 := strconv.ParseInt(arguments[1], 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	device, err := cuda.Open()
	if err != nil {
		return "", err
	}
	memory := os.NewFile(helperFile, "device memory")
	defer memory.Close()
	m, err := device.Map(memory, share.Bytes(size), false)
	if err != nil {
		return "", err
	}
	digest, err := device.Digest(m, share.Bytes(length))
	return hex.EncodeToString(digest[:]), errors.Join(err, device.Unmap(m))
}
