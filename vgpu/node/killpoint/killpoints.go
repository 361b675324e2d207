//go:build killpoints

package killpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// At kills the process when it reaches the point that GSHARE_TEST_KILL_AT names: recorded:3 is the third time at the point recorded.
var At = parse(os.Getenv("GSHARE_TEST_KILL_AT"))

// parse returns the function that kills at the point in the text; that for an empty text does nothing.
func parse(text string) func(point string) {
	at, count, _ := strings.Cut(text, ":")
	if at == "" {
		return func(string) {}
	}
	left := atomic.Int64{}
	n, _ := strconv.ParseInt(count, 10, 64)
	left.Store(max(1, n))
	return func(point string) {
		if point == at && left.Add(-1) == 0 {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
}
