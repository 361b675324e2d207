package main

import (
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// faultOf makes the agent end by SIGKILL between two steps of its protocol, for tests of what the next agent makes of it:
// GSHARE_TEST_KILL_AT=recorded:3 ends it the third time that it has written a record.
func faultOf(getenv func(string) string) func(string) {
	at, count, _ := strings.Cut(getenv("GSHARE_TEST_KILL_AT"), ":")
	if at == "" {
		return nil
	}
	left := atomic.Int64{}
	n, _ := strconv.ParseInt(count, 10, 64)
	left.Store(max(1, n))
	return func(point string) {
		if point == at && left.Add(-1) == 0 {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		}
	}
}
