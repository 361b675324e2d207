package mps

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Features are what newer drivers add to MPS, by the help of its own program. Namespaces (MPS v3, driver 615) are used where they are. Static
// partitions (driver 590) are not: one is changed only while its device has no clients, and shares come and go (hack/adr/0007).
type Features struct {
	StaticPartitions, Namespaces bool
}

// Features asks the program; one that is not there, or takes too long, has none. It waits for the program.
func (d Daemons) Features(ctx context.Context) Features {
	return Features{
		StaticPartitions: strings.Contains(d.help(ctx, "-h"), "static-partitioning"),
		Namespaces:       d.offersNamespaces(ctx),
	}
}

// offersNamespaces asks as NVIDIA's guide for Dynamo does.
func (d Daemons) offersNamespaces(ctx context.Context) bool {
	return strings.Contains(d.help(ctx, append(slices.Clone(version3), "-h")...), "namespace")
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
