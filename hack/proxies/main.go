// Command proxies runs a proxy of KServe or Knative for hack/benchgateway, which compares serving/gateway with it. An environment variable
// selects the proxy:
//
//   - "activator": Knative's activator, with its throttler and the handlers of its program. A fake of the API server's client tells it of one
//     revision, "plain" in the namespace "default". Statistics for the autoscaler are dropped instead of sent; there are neither metrics nor traces,
//     as by default.
//   - "queue-proxy": Knative's queue-proxy as its program runs it.
//   - "batcher": KServe's batcher with the handlers of its agent, which has nothing else switched on then. It logs nothing, other than the agent.
//
// It prints the address on which it listens, passes requests to the address in another variable, and ends on an interrupt.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	pkgnet "knative.dev/pkg/network"
)

// The environment variables that hack/benchgateway sets.
const (
	roleVariable   = "GSHARE_BENCH_ROLE"
	targetVariable = "GSHARE_BENCH_TARGET"
)

func main() {
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	address, err := start(os.Getenv(roleVariable), os.Getenv(targetVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(address)
	<-interrupt
}

// start starts a proxy and returns the address on which it listens.
func start(role, target string) (address string, err error) {
	var handler http.Handler
	switch role {
	case "activator":
		handler, err = newActivator(target)
	case "batcher":
		handler = newBatcher(target)
	case "queue-proxy":
		return startQueueProxy(target)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = pkgnet.NewServer("", handler).Serve(l) }() // until the process ends
	return l.Addr().String(), nil
}

// await waits until something listens on an address.
func await(address string) error {
	var err error
	for range 500 {
		var c net.Conn
		if c, err = net.Dial("tcp", address); err == nil {
			return c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
