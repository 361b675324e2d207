//go:build killpoints

package killpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// At kills the process at the point named by the environment variable GSHARE_TEST_KILL_AT. The value recorded:3 means the third call of At
// with "recorded".
var At = parse(os.Getenv("GSHARE_TEST_KILL_AT"))

// parse returns the function that kills the process at the point that the text names, or one that does nothing if the text is empty.
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
