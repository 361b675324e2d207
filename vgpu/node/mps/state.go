package mps

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// server is one that a daemon has started, with its clients by PID.
type server struct {
	name    string // of MPS v3
	pid     int
	fault   bool // it serves nobody new until those that a fault has failed have ended
	clients []int
}

// servers asks the daemon for its servers. One that has ended meanwhile has no clients.
func (c control) servers(ctx context.Context) (found []server, err error) {
	if c.namespaces {
		return c.named(ctx)
	}
	text, err := c.command(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	for _, pid := range numbers(text) {
		status, err := c.command(ctx, fmt.Sprint("get_server_status ", pid))
		if err != nil {
			return nil, err
		}
		clients, err := c.command(ctx, fmt.Sprint("get_client_list ", pid))
		if err != nil {
			return nil, err
		}
		found = append(found, server{pid: pid, fault: faulted(status), clients: numbers(clients)})
	}
	return found, nil
}

// terminate ends the CUDA work of a client, whose process goes on with errors. It has to come before any signal that ends the
// process: one that is killed at work can leave the server, and so all other clients, in no defined state.
func (c control) terminate(ctx context.Context, s server, client int) error {
	if c.namespaces {
		_, err := c.tell(ctx, "client", "terminate", strconv.Itoa(client))
		return err
	}
	_, err := c.command(ctx, fmt.Sprint("terminate_client ", s.pid, " ", client))
	return err
}

// quit lets the daemon end itself and its servers.
func (c control) quit(ctx context.Context) error {
	if c.namespaces {
		_, err := c.tell(ctx, "-q")
		return err
	}
	_, err := c.command(ctx, "quit")
	return err
}

// numbers reads PIDs from an answer, one a line; anything else is no PID.
func numbers(answer string) (pids []int) {
	for line := range strings.Lines(answer) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// faulted reads the state of a server: INITIALIZING, ACTIVE or FAULT.
func faulted(answer string) bool { return strings.Contains(strings.ToUpper(answer), "FAULT") }
