// Command servedemo compares ways to serve functions on GPUs: real runs of gshare-node --standalone with simulated GPUs, gshare serve, gshare-model
// and gshare load, one after the other. The functions get the requests of a trace of Azure Functions, of which a second plays a minute.
//
//	hack/serve-demo.sh
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Children get SIGKILL when the thread that started them ends, so that must be the main thread.
func init() { runtime.LockOSThread() }

func main() {
	var bin, trace string
	var seconds int
	flag.StringVar(&bin, "bin", "bin", "folder of gshare, gshare-node, gshare-model, the hook and, in fake, the simulated driver")
	flag.StringVar(&trace, "trace", "", "compressed trace of Azure Functions 2021")
	flag.IntVar(&seconds, "seconds", 20, "length of each run, at most that of the trace in minutes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, bin, trace, seconds); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "servedemo: interrupted")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "servedemo:", err)
		os.Exit(1)
	}
}

// run starts the agent, makes all runs and prints the comparison. When it returns, everything that it started has ended.
func run(ctx context.Context, bin, trace string, seconds int) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gsdemo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rates, err := readTrace(trace, seconds)
	if err != nil {
		return err
	}
	d := &demo{bin: bin, dir: dir, length: time.Duration(seconds) * time.Second}
	if err := d.write(rates); err != nil {
		return err
	}
	node, err := d.start(ctx, "msg=ready", "gshare-node", "--standalone", "--config", d.file("node.yaml"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.stop()) }()
	var results []result
	for i, w := range ways {
		fmt.Fprintf(os.Stderr, "%d of %d: %s, %v of load\n", i+1, len(ways), w.name, d.length)
		r, err := d.measure(ctx, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		results = append(results, r)
	}
	return printResults(os.Stdout, results)
}
