// Command mutate measures how much the tests notice. It draws a random sample of small changes ("mutations") to the rules, the plugins, the
// grant and the token server, makes one at a time, and runs the tests of the changed package on it. A mutation that no test notices shows
// behaviour that is not tested. The compiler gets the changed files as an overlay, so the tree is never touched. One test binary holds all
// mutations of a package that lie in functions: each is a copy of its function, selected by an environment variable.
//
// The same seed on the same tree draws the same sample. A mutation that does not compile is replaced by the next in the random order. Mutations
// that change nothing observable are listed in equivalent.txt with the reason, and are not run.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"
)

// defaultPackages are mutated unless arguments name other packages: the packages of rules, and the adapters that decide who gets a GPU.
var defaultPackages = []string{
	"./serving/rules/batching/...", "./vgpu/explain/...", "./vgpu/mig/...", "./vgpu/packing/...", "./serving/rules/pipeline/...", "./serving/rules/planning/...",
	"./serving/rules/profile/...", "./serving/rules/scaling/...", "./vgpu/share/...", "./vgpu/supervisor/...", "./vgpu/token/...", "./vgpu/watchdog/...",
	"./vgpu/whatif/...",
	"./node/enforcement", "./node/grant", "./node/injection", "./node/inventory", "./node/tokenserver",
	"./plugins/...",
}

func main() {
	seed := flag.Uint64("seed", 1, "seed of the random order of mutations")
	n := flag.Int("n", 300, "how many mutations to try; 0 tries all")
	workers := flag.Int("workers", 2, "how many mutations to try at the same time")
	timeout := flag.Duration("timeout", time.Minute, "how long the tests of one mutation may run; a test that hangs has noticed it")
	match := flag.String("match", "", "try only mutations whose text, as printed, contains this")
	again := flag.String("again", "", "try only the mutations that this file, the output of an earlier run, lists as survived")
	level := flag.Float64("level", 0, "fail when fewer than this percentage are noticed or equivalent")
	list := flag.Bool("list", false, "print the sample without running it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = defaultPackages
	}
	if err := run(ctx, packages, options{*seed, *n, *workers, *timeout, *match, *again, *level, *list}); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	seed    uint64
	n       int
	workers int
	timeout time.Duration
	match   string
	again   string
	level   float64
	list    bool
}

func run(ctx context.Context, patterns []string, o options) error {
	packages, err := listPackages(ctx, patterns)
	if err != nil {
		return err
	}
	known, err := readEquivalents("hack/mutate/equivalent.txt")
	if err != nil {
		return err
	}
	wanted := func(m mutation) bool { return strings.Contains(m.String(), o.match) }
	if o.again != "" {
		survivors, err := readSurvivors(o.again)
		if err != nil {
			return err
		}
		wanted = func(m mutation) bool { return survivors[m.id()] }
	}
	var all []mutation
	for _, p := range packages {
		found, err := p.mutations()
		if err != nil {
			return err
		}
		for _, m := range found {
			if wanted(m) {
				all = append(all, m)
			}
		}
	}
	rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if o.n == 0 || o.n > len(all) {
		o.n = len(all)
	}
	fmt.Printf("%d mutations of %d packages; seed %d, sample %d\n", len(all), len(packages), o.seed, o.n)
	if o.list {
		for _, m := range all[:o.n] {
			fmt.Println(m)
		}
		return nil
	}
	count := map[verdict]int{}
	var mu sync.Mutex
	report := func(m mutation, v verdict, why string) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			count[v]++
			fmt.Printf("%-10s %s  [%s]\n", v, m, why)
		}
	}
	for rest := all; len(rest) > 0; {
		tried := count[noticed] + count[equivalent] + count[survived]
		batch := rest[:min(o.n-tried, len(rest))]
		if len(batch) == 0 {
			break
		}
		rest = rest[len(batch):]
		var unknown []mutation
		for _, m := range batch {
			if why := known[m.id()]; why != "" {
				report(m, equivalent, why)
			} else {
				unknown = append(unknown, m)
			}
		}
		tryAll(ctx, unknown, o, report)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	good, total := count[noticed]+count[equivalent], count[noticed]+count[equivalent]+count[survived]
	percentage := 100 * float64(good) / float64(max(total, 1))
	fmt.Printf("%d mutations: %d noticed, %d equivalent, %d survived: %.1f %% noticed or equivalent (%d drawn did not compile)\n",
		total, count[noticed], count[equivalent], count[survived], percentage, count[invalid])
	if percentage < o.level {
		return fmt.Errorf("fewer than %v %% are noticed or equivalent", o.level)
	}
	return nil
}
