package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Kill ends the process at once (SIGKILL). It can hit no other: a pidfd is never used again.
func (p Process) Kill() error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return err
	}
	if sent != nil {
		return fmt.Errorf("end process %d: %w", p.PID, sent)
	}
	return nil
}
