//go:build unix

package atomicfile

import "golang.org/x/sys/unix"

const (
	noWait      = unix.O_NONBLOCK | unix.O_NOCTTY
	errNoDevice = unix.ENXIO
)
