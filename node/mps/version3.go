package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The commands of MPS v3 follow NVIDIA's pages "MPS v3 Interface" and "MPS v3 Namespaces" of release 615. These pages confirm: -d -p 3, -m,
// -q, the verbs and options below, their output as comma-separated values, the directory of a namespace, and names of lowercase letters,
// digits and underscores. Not confirmed, for lack of such a driver: fractions of a percent (the page says 1 to 100, but its tables have two
// decimals), the status of a server after a fault (assumed to be as in v2), reuse of a directory of the same name, and a directory mounted
// at another path in a container.

// version3Flags are the command-line flags that select MPS v3. NVIDIA's guide for Dynamo passes them with each command; the program uses
// the version of the running daemon in any case.
var version3Flags = []string{"-p", "3"}

// serverName is the name of the only MPS server of a slice's daemon. Work of several servers would be time-sliced on the device.
const serverName = "shares"

const csvFormat = "--format=csv,noheader"

// commandV3 sends one command to a daemon of MPS v3 and returns its output, or an error if the daemon refuses it.
func (c control) commandV3(ctx context.Context, words ...string) (string, error) {
	return c.retry(ctx, func(ctx context.Context) (string, error) {
		output, err := c.run(ctx, "", append(slices.Clone(version3Flags), words...)...)
		if err != nil && (strings.HasSuffix(err.Error(), "exit status 1: ") || strings.HasSuffix(err.Error(), busyText)) && c.hasPipe() {
			err = fmt.Errorf("%w: %w", errBusy, err)
		}
		return output, err
	})
}

// busyText is what the control program prints if the daemon closes its session before all commands are sent.
const busyText = "Cannot send command to MPS control daemon process"

// parseRecords parses comma-separated values with one record per line.
func parseRecords(answer string) (all [][]string) {
	for line := range strings.Lines(answer) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, strings.Split(line, ","))
		}
	}
	return all
}

// listServersV3 queries a daemon of MPS v3 for its servers (name, uid, pid, status) and their clients (pid, ...).
func (c control) listServersV3(ctx context.Context) (found []server, err error) {
	list, err := c.commandV3(ctx, "server", "list", csvFormat)
	if err != nil {
		return nil, err
	}
	for _, r := range parseRecords(list) {
		if len(r) < 4 {
			continue
		}
		clients, err := c.commandV3(ctx, "client", "list", "--server="+r[0], csvFormat)
		if err != nil {
			return nil, err
		}
		s := server{name: r[0], fault: isFaulted(r[3])}
		s.pid, _ = strconv.Atoi(r[2])
		for _, client := range parseRecords(clients) {
			s.clients = append(s.clients, parsePIDs(client[0])...)
		}
		found = append(found, s)
	}
	return found, nil
}

// listNamespaces returns the names of the MPS server's namespaces.
func (c control) listNamespaces(ctx context.Context) (names []string, err error) {
	list, err := c.commandV3(ctx, "namespace", "list", "--server="+serverName, csvFormat)
	for _, r := range parseRecords(list) {
		names = append(names, r[0])
	}
	return names, err
}

// setLimits sets all limits of a share's MPS namespace. A limit that is not set is unlimited; those of the server are not inherited.
func (c control) setLimits(ctx context.Context, m Member) error {
	priority := "0"
	if m.LowPriority {
		priority = "1"
	}
	_, err := c.commandV3(ctx, "namespace", "set", m.Name, "--server="+serverName,
		"--active-thread-percentage="+strings.TrimSuffix(m.SMs.Percent(), "%"),
		"--pinned-memory-limit="+strconv.FormatInt(int64((m.Memory+ContextMemory(m.SMs))/share.MiB), 10)+"M", "--client-priority="+priority)
	return err
}

// terminateNamespace terminates the CUDA work of all clients of an MPS namespace.
func (c control) terminateNamespace(ctx context.Context, name string) (all error) {
	list, err := c.commandV3(ctx, "client", "list", "--server="+serverName, csvFormat)
	if err != nil {
		return err
	}
	for _, r := range parseRecords(list) {
		for _, pid := range parsePIDs(r[0]) {
			if slices.Contains(r, name) {
				all = errors.Join(all, c.terminateClient(ctx, server{}, pid))
			}
		}
	}
	return all
}

// runsVersion3 reports whether the running daemon, which an earlier agent may have started, uses MPS v3.
func (c control) runsVersion3() bool {
	pids, _ := c.findProcesses()
	return slices.ContainsFunc(pids, hasVersion3Arguments)
}

func hasVersion3Arguments(pid int) bool { return hasArguments(pid, version3Flags...) }

// recordVersion stores the version of the daemon that runs or is about to be started, so that its successor can be given the same version.
func (c control) recordVersion() error {
	if !c.isVersion3 {
		return ignoreNotExist(os.Remove(c.versionFile()))
	}
	return errors.Join(os.MkdirAll(c.logDir(c.slice), 0o755), os.WriteFile(c.versionFile(), nil, 0o644))
}

// recordedVersion3 reports whether the last daemon of the slice used MPS v3.
func (c control) recordedVersion3() bool {
	_, err := os.Stat(c.versionFile())
	return err == nil
}

// versionFile returns the path of a marker file that exists only if the last daemon of the slice used MPS v3.
func (c control) versionFile() string { return filepath.Join(c.logDir(c.slice), "version3") }

func ignoreNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
