//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	processes "github.com/gshare-dev/gshare/serving/fleet/machine"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const serveLong = `Serve functions on this machine: pass HTTP requests to as many replicas as the load needs, each on a share of a GPU. Without load there
are no replicas.

FILE contains a GPUFunction in each YAML document. A request names its function by its host: FUNCTION or FUNCTION.NAMESPACE. The first
request to a function without replicas starts a replica and waits for it. A replica is a process that must listen on the port in its
environment variable PORT. It gets its share from the agent of this machine (gshare-node --standalone). With --in-turn, the share is a
whole GPU, which a function keeps until other functions need it, so there can be more functions than GPUs.

On a terminal, gshare serve shows the functions in a table. On SIGTERM, on Ctrl-C or when its terminal closes (SIGHUP), it answers the
requests that it has accepted and ends. A second signal ends it and the replicas at once.`

// serveRun holds the flags of gshare serve.
type serveRun struct {
	address, metrics string
	hook, socket     string
	level            slog.Leveler // of the log
	inTurn           bool
}

var _ = onMachine.add(serveCommand)

func serveCommand() *cobra.Command {
	s := &serveRun{}
	cmd := &cobra.Command{
		Use: "serve FILE", Short: "Serve functions on this machine, with as many replicas as the load needs", Long: serveLong, Args: cli.Exactly(1),
		Example: "  gshare serve functions.yaml\n  gshare serve functions.yaml --address :80 --metrics-address 127.0.0.1:9480\n" +
			"  gshare serve functions.yaml --in-turn",
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&s.address, "address", "127.0.0.1:8080", "address to accept requests on")
	f.StringVar(&s.metrics, "metrics-address", "", "address to serve /metrics on, such as 127.0.0.1:9480 (default: none)")
	f.StringVar(&s.hook, "hook", "", "path of libgshare.so (default: next to gshare)")
	addSocket(f, &s.socket)
	f.BoolVar(&s.inTurn, "in-turn", false, "run one server at a time on each GPU, and let the functions take turns by the deadlines of waiting requests")
	s.level = cli.AddLogLevel(f)
	return cmd
}

// run reads the functions, serves them until the command's context ends, and then ends in order.
func (s *serveRun) run(cmd *cobra.Command, file string) error {
	functions, err := readFunctions(file)
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", file, err))
	}
	starter, err := s.starter(cmd.Context())
	if err != nil {
		return err
	}
	if err := s.checkSize(cmd.Context(), functions); err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", file, err))
	}
	screen := newScreen(cmd.OutOrStdout(), cmd.ErrOrStderr())
	defer screen.end()
	log := cli.NewLog(screen, s.level)
	registry := prometheus.NewRegistry()
	g := gateway.New(gateway.Config{Metrics: registry, Log: log})
	m := processes.New(starter, func(replica, line string) { fmt.Fprintf(screen, "%s | %s\n", replica, line) })
	f, err := s.servers(cmd.Context(), g, m, log, registry, functions)
	if err != nil {
		return err
	}
	stopMetrics, err := s.serveMetrics(registry, log)
	if err != nil {
		return cli.Usagef("--metrics-address: %w", err)
	}
	defer stopMetrics()
	listener, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", s.address)
	if err != nil {
		return cli.Usagef("--address: %w", err)
	}
	log.Info("serving", "address", listener.Addr().String(), "functions", len(functions))
	server := g.Server()
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	err = serveFleet(cmd.Context(), server, listener, f, m, screen)
	for _, s := range f.Status() {
		l := g.Load(s.Name)
		log.Info("stopped", "function", s.Name.String(), "requests", l.Arrived, "answered", l.Answered, "in time", l.InTime, "refused", l.Refused,
			"failed", l.Failed, "clients gone", l.Gone, "invalid", l.Invalid, "starts", s.Starts, "GPU seconds", math.Round(10*s.GPUTime.Seconds())/10)
	}
	return err
}

// serveFleet serves until ctx ends. Then it stops accepting requests, waits until the accepted ones are answered, and ends the replicas. A
// second signal during that time ends everything at once.
func serveFleet(ctx context.Context, server *http.Server, listener net.Listener, f servers, m *processes.Machine, screen *screen) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done, failed := make(chan struct{}), make(chan error, 1)
	go func() { defer close(done); f.Run(running) }()
	go func() { failed <- server.Serve(listener) }()
	screen.show(func(width int) string { return functionTable(f.Status(), width) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	again, release := cli.UntilSignal(context.WithoutCancel(ctx))
	defer release()
	fmt.Fprintln(screen, "gshare: stopping; interrupt again to end all at once")
	_ = server.Shutdown(again) // fails only if again ends, which the select below handles
	stop()
	select {
	case <-done:
		return err
	case <-again.Done():
	}
	m.Kill()
	<-done
	_ = server.Close()
	return cli.WithExitCode(130, errors.New("ended at once by a second signal"))
}

// readFunctions reads the functions of a file and checks that their programs are there.
func readFunctions(file string) ([]*api.GPUFunction, error) {
	text, err := readSource(file)
	if err != nil {
		return nil, err
	}
	functions, err := api.Decode(text)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, f := range functions {
		errs = append(errs, findProgram(f))
	}
	return functions, errors.Join(errs...)
}

// readSource reads a file of functions. Of a file that is too long, it reads just enough for the parser to see that it is.
func readSource(file string) ([]byte, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(io.LimitReader(opened, api.MaxFile+1))
}

// findProgram returns an error if the program of a function is missing.
func findProgram(f *api.GPUFunction) error {
	if _, err := exec.LookPath(f.Container().Command[0]); err != nil {
		return fmt.Errorf("function %s: spec.template.spec.containers[0].command[0]: %w", f.Name, err)
	}
	return nil
}

// checkSize returns an error if a server of a function could not run on this machine even if no other program had a share.
func (s *serveRun) checkSize(ctx context.Context, functions []*api.GPUFunction) error {
	status, err := agent.New(s.socket).Status(ctx)
	if err != nil {
		return err
	}
	largest := share.Bytes(0)
	for _, d := range status.Devices {
		largest = max(largest, d.Memory)
	}
	var errs []error
	for _, f := range functions {
		wanted := f.Spec.Resources.Share
		if memory, err := wanted.Memory.Parse(); err == nil && memory.Value() > int64(largest) {
			errs = append(errs, fmt.Errorf("function %s: %w", f.Name, share.Invalid("spec.resources.share.memory",
				"%s are more than a GPU of this machine has, %d MiB", wanted.Memory, largest/share.MiB)))
		}
		if wanted.GPUs > int64(len(status.Devices)) {
			errs = append(errs, fmt.Errorf("function %s: %w", f.Name, share.Invalid("spec.resources.share.gpus",
				"%d are more than this machine has, %d", wanted.GPUs, len(status.Devices))))
		}
	}
	return errors.Join(errs...)
}

// starter returns the command that starts a program on a share: gshare run. It fails if no agent answers.
// What an earlier gshare that was killed had started is ended, so that it holds no share.
func (s *serveRun) starter(ctx context.Context) ([]string, error) {
	gshare, err := os.Executable()
	if err != nil {
		return nil, err
	}
	hook, err := findHook(s.hook)
	if err != nil {
		return nil, err
	}
	client := agent.New(s.socket)
	if _, err := client.Status(ctx); err != nil {
		return nil, err
	}
	left, err := claimChildren()
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "gshare: ended what a gshare that was killed had left: %s\n", strings.Join(left, ", "))
	}
	return []string{gshare, "run", "--hook", hook, "--socket", client.Socket}, nil
}

// serveMetrics serves /metrics until stop is called, if an address was given.
func (s *serveRun) serveMetrics(registry *prometheus.Registry, log *slog.Logger) (stop func(), err error) {
	if s.metrics == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", s.metrics)
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "address", listener.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	return func() { _ = server.Close() }, nil
}

// functionTable returns the table of functions, in lines of at most the given width.
func functionTable(functions []fleet.Status, width int) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSLO\tP99\tHIT\tRPS\tREPLICAS\tSHARE\tREADY\tREASON")
	for _, s := range functions {
		name := s.Name.Name
		if s.Name.Namespace != "default" {
			name = s.Name.String()
		}
		p99, hit, reason, all := "-", "-", s.Reason, 0
		if s.P99 > 0 {
			p99 = s.P99.Round(100 * time.Microsecond).String()
		}
		if !math.IsNaN(s.Hit) {
			hit = fmt.Sprintf("%.1f%%", 100*s.Hit)
		}
		if s.Message != "" {
			reason += ": " + s.Message
		}
		for _, n := range s.Replicas {
			all += n
		}
		gpus := ""
		if s.GPUs > 1 {
			gpus = fmt.Sprintf("%d x ", s.GPUs)
		}
		fmt.Fprintf(t, "%s\t%v\t%s\t%s\t%.3g\t%d/%d\t%s%s x %s\t%s\t%s\n", name, s.SLO, p99, hit, s.Rate, s.Replicas["ready"], all,
			gpus, formatRange(s.Share.SMRequest, s.Share.SMLimit), formatRange(s.Share.QuotaRequest, s.Share.QuotaLimit),
			map[bool]string{true: "True", false: "False"}[s.Ready], reason)
	}
	t.Flush()
	var cut strings.Builder
	for line := range strings.Lines(b.String()) {
		text := []rune(strings.TrimRight(line, " \n"))
		cut.WriteString(string(text[:min(len(text), width)]) + "\n")
	}
	return cut.String()
}
