package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/oip"
)

// The environment variables that tell a child of this program which role it has, and the address to which it passes requests.
const (
	roleVariable    = "GSHARE_BENCH_ROLE"
	targetVariable  = "GSHARE_BENCH_TARGET"
	profileVariable = "GSHARE_BENCH_PROFILE" // folder for CPU profiles; none are written if empty
)

// The roles: proxies, and the server behind them.
const (
	direct         = "none"
	reverseProxy   = "ReverseProxy"
	throughGateway = "gateway"
	throughBatches = "gateway, batches"
	throughNginx   = "nginx"
	server         = "server"

	throughKnative = "activator, queue-proxy" // Knative's
	throughKServe  = "KServe's batcher"
)

// proxy is a running proxy with its server.
type proxy struct {
	address   string
	processes []*exec.Cmd // the server is the first
	pids      []int       // whose processor time counts
	folder    string
}

func (o *options) startProxy(ctx context.Context, name string) (*proxy, error) {
	p := &proxy{}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	target, err := p.start(ctx, exe, server, "")
	if err != nil {
		p.stop()
		return nil, err
	}
	p.pids = nil
	switch name {
	case direct:
		p.address = target
	case throughNginx:
		p.address, err = p.startNginx(ctx, target)
	case throughKnative:
		if target, err = p.start(ctx, o.proxies, "queue-proxy", target); err == nil {
			p.address, err = p.start(ctx, o.proxies, "activator", target)
		}
	case throughKServe:
		p.address, err = p.start(ctx, o.proxies, "batcher", target)
	default:
		p.address, err = p.start(ctx, exe, name, target)
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// start starts a program in a role and returns the address on which it listens.
func (p *proxy) start(ctx context.Context, exe, role, target string) (string, error) {
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, targetVariable+"="+target)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	p.processes, p.pids = append(p.processes, cmd), append(p.pids, cmd.Process.Pid)
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

// nginxConfig configures nginx with one worker and no access log. It keeps connections to the server open.
const nginxConfig = `worker_processes 1;
daemon off;
error_log stderr crit;
pid %[1]s/pid;
events { worker_connections 1024; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	upstream server { server %[2]s; keepalive 128; keepalive_requests 1000000000; }
	server {
		listen %[3]s;
		location / { proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; }
	}
}
`

func (p *proxy) startNginx(ctx context.Context, target string) (string, error) {
	folder, err := os.MkdirTemp("", "gshare-bench")
	if err != nil {
		return "", err
	}
	p.folder = folder
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	l.Close()
	file := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, folder, target, address), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "nginx", "-c", file, "-p", folder)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	p.processes = append(p.processes, cmd)
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			p.pids, err = children(cmd.Process.Pid)
			return address, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", errors.New("nginx does not listen")
}

// children returns the IDs of a process's children.
func children(pid int) (pids []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, child)
	}
	return pids, err
}

// processor returns the processor time that the proxy has used.
func (p *proxy) processor() time.Duration {
	var sum time.Duration
	for _, pid := range p.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, ticks := range fields[11:13] { // utime and stime, in ticks of 10 ms
			n, _ := strconv.Atoi(ticks)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

func (p *proxy) stop() {
	for _, cmd := range p.processes {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	if p.folder != "" {
		_ = os.RemoveAll(p.folder)
	}
}

// serve runs a child: the server, or a proxy in front of it. It ends on an interrupt.
func serve(role, target string) error {
	handler, err := handlerOf(role, target)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop, err := profile(role)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println(l.Addr())
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(l, handler) }()
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	select {
	case err := <-failed:
		return err
	case <-interrupt:
		return nil
	}
}

// profile starts a CPU profile of this process if profileVariable is set. stop ends the profile.
func profile(role string) (stop func(), err error) {
	folder := os.Getenv(profileVariable)
	if folder == "" {
		return func() {}, nil
	}
	file, err := os.Create(filepath.Join(folder, strings.ReplaceAll(role, ", ", "-")+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}

func handlerOf(role, target string) (http.Handler, error) {
	switch role {
	case server:
		return http.HandlerFunc(answer), nil
	case reverseProxy:
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
		p.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
		return p, nil
	case throughGateway, throughBatches:
		f := gateway.Function{FunctionName: gateway.FunctionName{Namespace: "default", Name: "plain"}}
		r := gateway.Replica{ID: "server", Address: target, Credits: 64}
		if role == throughBatches {
			f.Name, f.Protocol, f.MaxBatch = "batched", gateway.OIP, 8
			r.Credits = 4
		}
		g := gateway.New(gateway.Config{})
		if err := g.SetFunction(f); err != nil {
			return nil, err
		}
		return g, g.SetReplicas(f.FunctionName, []gateway.Replica{r})
	}
	return nil, fmt.Errorf("unknown role %q", role)
}

// answer is the server: it answers a plain request with 256 bytes, and an inference request with its inputs as outputs.
func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	length, none := strconv.Atoi(r.Header.Get(oip.HeaderName))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case none != nil && (strings.HasSuffix(r.URL.Path, "/infer") || strings.HasSuffix(r.URL.Path, ":predict")):
		w.Header().Set("Content-Type", "application/json")
		body = bytes.Replace(body, []byte(`"inputs"`), []byte(`"outputs"`), 1)
		_, _ = w.Write(bytes.Replace(body, []byte(`"instances"`), []byte(`"predictions"`), 1))
	case none != nil:
		_, _ = w.Write(make([]byte, 256))
	default:
		head := bytes.Replace(body[:length], []byte(`"inputs"`), []byte(`"outputs"`), 1)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(oip.HeaderName, strconv.Itoa(len(head)))
		w.Header().Set("Content-Length", strconv.Itoa(len(head)+len(body)-length))
		_, _ = w.Write(append(head, body[length:]...))
	}
}
