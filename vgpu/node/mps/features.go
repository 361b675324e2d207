package mps

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// Features are what newer drivers add to MPS, by the help of its own program. Neither is used: a static partition (driver 590) is
// changed only while its device has no clients, and shares come and go; namespaces (MPS v3, driver 615) would keep a client from
// loosening its limits, and have not met a driver yet.
type Features struct {
	StaticPartitions, Namespaces bool
}

// Features asks the program; one that is not there, or takes too long, has none. It waits for the program.
func (d Daemons) Features(ctx context.Context) Features {
	return Features{
		StaticPartitions: strings.Contains(d.help(ctx, "-h"), "static-partitioning"),
		Namespaces:       strings.Contains(d.help(ctx, "-p", "3", "-h"), "namespace"),
	}
}

// help is what the program says of itself, whatever its exit code.
func (d Daemons) help(ctx context.Context, arguments ...string) string {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program(), arguments...)
	cmd.WaitDelay = 100 * time.Millisecond
	out, _ := cmd.CombinedOutput()
	return string(out)
}
