package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The commands of MPS v3, after NVIDIA's pages "MPS v3 Interface" and "MPS v3 Namespaces" of release 615. Confirmed there: -d -p 3, -m, -q, the
// verbs and options below, their output as comma-separated values, the directory of a namespace, that names are of lowercase
// letters, digits and underscores. Not confirmed, for want of such a driver: fractions of a percent (the page says 1 to 100, and
// its tables have two decimals), the status of a server after a fault (taken to be as in v2), directories of the same name
// used again, a directory mounted at another path in a container.

// version3 selects it. A program follows the daemon that runs all the same; NVIDIA's guide for Dynamo gives it with each command.
var version3 = []string{"-p", "3"}

// serverName is the one server of a slice's daemon: work of several servers would take turns on the device.
const serverName = "shares"

// tell gives one command and gives the answer. A command that is refused is an error.
func (c control) tell(ctx context.Context, words ...string) (string, error) {
	return c.exec(ctx, "", append(slices.Clone(version3), words...)...)
}

// records reads comma-separated values, a record a line.
func records(answer string) (all [][]string) {
	for line := range strings.Lines(answer) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, strings.Split(line, ","))
		}
	}
	return all
}

const values = "--format=csv,noheader"

// named asks for servers: name, uid, pid, status; and their clients: pid.
func (c control) named(ctx context.Context) (found []server, err error) {
	list, err := c.tell(ctx, "server", "list", values)
	if err != nil {
		return nil, err
	}
	for _, r := range records(list) {
		if len(r) < 4 {
			continue
		}
		clients, err := c.tell(ctx, "client", "list", "--server="+r[0], values)
		if err != nil {
			return nil, err
		}
		s := server{name: r[0], fault: faulted(r[3])}
		s.pid, _ = strconv.Atoi(r[2]) // 0: it has not been started yet
		for _, client := range records(clients) {
			s.clients = append(s.clients, numbers(client[0])...)
		}
		found = append(found, s)
	}
	return found, nil
}

// spaces lists the namespaces of the server.
func (c control) spaces(ctx context.Context) (names []string, err error) {
	list, err := c.tell(ctx, "namespace", "list", "--server="+serverName, values)
	for _, r := range records(list) {
		names = append(names, r[0])
	}
	return names, err
}

// limit gives a namespace all its limits: what is not set is not limited, nor by the server's.
func (c control) limit(ctx context.Context, m Member) error {
	priority := "0"
	if m.Behind {
		priority = "1"
	}
	_, err := c.tell(ctx, "namespace", "set", m.Name, "--server="+serverName,
		"--active-thread-percentage="+strings.TrimSuffix(m.SMs.Percent(), "%"),
		"--pinned-memory-limit="+strconv.FormatInt(int64((m.Memory+ContextMemory)/share.MiB), 10)+"M", "--client-priority="+priority)
	return err
}

// endIn ends the work of the clients of a namespace. A client is a record of PID, server, devices, namespace and command.
func (c control) endIn(ctx context.Context, name string) (all error) {
	list, err := c.tell(ctx, "client", "list", "--server="+serverName, values)
	if err != nil {
		return err
	}
	for _, r := range records(list) {
		for _, pid := range numbers(r[0]) {
			if slices.Contains(r, name) {
				all = errors.Join(all, c.terminate(ctx, server{}, pid))
			}
		}
	}
	return all
}

// speaks says that the daemon that runs was started with namespaces: also an earlier agent may have started it.
func (c control) speaks() bool {
	daemons, _ := c.processes()
	return slices.ContainsFunc(daemons, speaksVersion3)
}

func speaksVersion3(pid int) bool { return startedWith(pid, version3...) }

// control is that of a daemon that may run.
func (d Daemons) control(slice string) control {
	c := control{Daemons: d, slice: slice}
	c.namespaces = c.speaks()
	return c
}

// remember notes what the daemon that runs, or is about to be started, speaks, for the one after it.
func (c control) remember() error {
	if !c.namespaces {
		return ignoreMissing(os.Remove(c.mark()))
	}
	return errors.Join(os.MkdirAll(c.log(c.slice), 0o755), os.WriteFile(c.mark(), nil, 0o644))
}

func (c control) spoke() bool {
	_, err := os.Stat(c.mark())
	return err == nil
}

func (c control) mark() string { return filepath.Join(c.log(c.slice), "version3") }

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
