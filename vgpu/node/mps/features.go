package mps

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Features are what newer drivers add to MPS, by the help of its own program. Namespaces (MPS v3, driver 615) are used where they are. Static
// partitions (driver 590) are not: one is changed only while its device has no clients, and shares come and go (docs/adr/0007).
type Features struct {
	StaticPartitions, Namespaces bool
}

// Features asks the program. It waits for the program.
func (d Daemons) Features(ctx context.Context) (Features, error) {
	text, err := d.help(ctx, "-h")
	if err != nil {
		return Features{}, err
	}
	has, err := d.offersNamespaces(ctx)
	return Features{StaticPartitions: strings.Contains(text, "static-partitioning"), Namespaces: has}, err
}

// offersNamespaces asks as NVIDIA's guide for Dynamo does.
func (d Daemons) offersNamespaces(ctx context.Context) (bool, error) {
	text, err := d.help(ctx, append(slices.Clone(version3), "-h")...)
	return strings.Contains(text, "namespace"), err
}

// help is what the program says of itself, whatever its exit code. A program that was ended, as one that takes too long is, has said nothing.
func (d Daemons) help(ctx context.Context, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program(), arguments...)
	cmd.WaitDelay = 100 * time.Millisecond
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("the help of %s: %w", d.program(), err)
	}
	return string(out), nil
}
