// Command kedascaler answers KEDA's queries for the function resnet50 of the namespace ml. The load on the function comes as lines of standard
// input: the number of requests in each second from then on, or "request" for one request that waits. It prints its address.
//
// It is a program of its own because it cannot be linked with KEDA: both register the protocol buffer messages of externalscaler.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/keda"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// load is the load on the function.
type load struct {
	mu   sync.Mutex
	now  gateway.Load
	rate uint64
}

func (l *load) get(gateway.FunctionName) gateway.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// change adds n requests, sets how many requests wait, and sets how many arrive in each second from now on.
func (l *load) change(n, rate uint64, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.Arrived, l.now.Received, l.now.Waiting, l.rate = l.now.Arrived+n, l.now.Received+n, waiting, rate
}

func run() error {
	f := &api.GPUFunction{Spec: api.GPUFunctionSpec{
		SLO:     api.SLO{Latency: "100ms"},
		Scaling: api.Scaling{Autoscaler: api.External, RequestsPerSecond: 10, Window: "2s", KeepShared: "100ms"},
	}}
	f.Namespace, f.Name = "ml", "resnet50"
	complete, err := f.CompleteForCluster(0)
	if err != nil {
		return err
	}
	l := &load{}
	advisor := fleet.NewAdvisor(l.get, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err := advisor.Set(complete, nil); err != nil {
		return err
	}
	go advisor.Run(context.Background())
	go func() {
		for n := uint64(0); ; n++ { // spread the arrivals evenly over each second
			time.Sleep(100 * time.Millisecond)
			l.mu.Lock()
			come := l.rate*(n+1)/10 - l.rate*n/10
			l.now.Arrived, l.now.Received = l.now.Arrived+come, l.now.Received+come
			l.mu.Unlock()
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := keda.NewServer(advisor)
	go func() {
		defer server.Stop() // standard input ends with the test
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if lines.Text() == "request" {
				l.change(1, 0, 1)
				advisor.Wake(gateway.FunctionName{Namespace: f.Namespace, Name: f.Name})
				continue
			}
			rate, err := strconv.ParseUint(lines.Text(), 10, 32)
			if err != nil {
				log.Fatal(err)
			}
			l.change(0, rate, 0)
		}
	}()
	fmt.Println(listener.Addr())
	return server.Serve(listener)
}
