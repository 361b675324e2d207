package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
	"github.com/gshare-dev/gshare/node/store"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/node/unixsocket"
	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

const (
	asStore  = "GSHARE_TEST_STORE"  // socket of the store that the test binary is to be
	asDigest = "GSHARE_TEST_DIGEST" // it is to be the store's helper
)

// serveStore serves a store to the user's programs until the process is killed.
func serveStore(socket string) error {
	if os.Getenv(asDigest) != "" {
		digest, err := store.RunHelper(os.Args[1:])
		fmt.Println(digest)
		return err
	}
	device, err := cuda.Open()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	server := store.New(store.Options{
		Namespace: fmt.Sprint(os.Geteuid()), Capacity: 1024 * share.MiB, Identify: store.Users, Memory: device,
		Digest: store.Helper("env", asDigest+"=1", exe), Log: slog.New(slog.DiscardHandler),
	})
	listener, err := unixsocket.Listen("unixpacket", socket, 0o600, unixsocket.NewLimiter())
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return server.Serve(context.Background(), listener)
}

// startStore starts a store and returns its process.
func startStore(t *testing.T, socket string, env []string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), append(env, asStore+"="+socket)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the store says %q", lines.Text())
	}
	return cmd
}

// usedBytes returns what the driver counts of the device, without what the program that asks takes.
func usedBytes(t *testing.T, folder string, env []string) int64 {
	t.Helper()
	cmd := exec.Command(filepath.Join(folder, "linked"))
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	var left, total int64
	if _, scanned := fmt.Sscanf(string(out), "ok %d %d", &left, &total); err != nil || scanned != nil {
		t.Fatalf("%q: %v, %v", out, err, scanned)
	}
	return total - left - 64<<20
}

// TestSharedWeights runs three servers with one copy of the weights, and a control with their own. Results are right, also when the store has been
// killed, and the memory is free when the last server has ended.
func TestSharedWeights(t *testing.T) {
	folder := driver(t)
	short, err := os.MkdirTemp("", "gs") // for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	socket := filepath.Join(short, "store.sock")
	env := []string{"LD_LIBRARY_PATH=" + folder, "FAKE_CUDA_SHARED=" + filepath.Join(folder, "account")}
	shared := startStore(t, socket, env)
	const weights, servers = 100 << 20, 3
	arguments := []string{"--name", "resnet50", "--weights", "100Mi", "--batch", "1=1ms"}
	check := func(p *process) {
		t.Helper()
		if status, answer := p.post(t, "/", "hello"); status != http.StatusOK || !strings.Contains(answer, `"checksum":4248703782`) {
			t.Errorf("%d: %s", status, answer)
		}
	}
	var all []*process
	for n := range servers {
		p := start(t, folder, env, append(arguments, "--store", socket)...)
		all = append(all, p)
		check(p)
		used := usedBytes(t, folder, env)
		if private := used - weights; private <= 0 || private > int64(n+1)*(1<<20) {
			t.Errorf("%d servers have %d bytes, of which %d are weights", n+1, used, weights)
		}
	}
	own := start(t, folder, env, arguments...)
	if used := usedBytes(t, folder, env); used < 2*weights {
		t.Errorf("control: a server with its own weights, and all have %d bytes", used)
	}
	_ = own.Process.Kill()
	_ = own.Wait()
	_ = shared.Process.Kill()
	_ = shared.Wait()
	for i, p := range all {
		check(p)
		if used := usedBytes(t, folder, env); used < weights || used > weights+servers*(1<<20) {
			t.Errorf("without the store, %d servers have %d bytes", len(all)-i, used)
		}
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	for deadline := time.Now().Add(20 * time.Second); usedBytes(t, folder, env) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are left", usedBytes(t, folder, env))
		}
	}
}

// TestUnloadedWeights unloads and loads a model: the store keeps the weights meanwhile.
func TestUnloadedWeights(t *testing.T) {
	folder := driver(t)
	short, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	socket := filepath.Join(short, "store.sock")
	env := []string{"LD_LIBRARY_PATH=" + folder, "FAKE_CUDA_SHARED=" + filepath.Join(folder, "account")}
	startStore(t, socket, env)
	p := start(t, folder, env, "--name", "resnet50", "--weights", "5Mi", "--batch", "1=1ms", "--store", socket)
	for _, step := range []string{"unload", "load"} {
		if status, answer := p.post(t, "/v2/repository/models/resnet50/"+step, "{}"); status != http.StatusOK {
			t.Fatalf("%s: %d, %s", step, status, answer)
		}
		if used := usedBytes(t, folder, env); used != 6<<20 {
			t.Errorf("after %s the device has %d bytes in use", step, used)
		}
	}
	if status, answer := p.post(t, "/", "hello"); status != http.StatusOK || !strings.Contains(answer, "4248703782") {
		t.Errorf("%d: %s", status, answer)
	}
	_ = p.Process.Kill()
	if text := <-p.stderr; strings.Count(text, "stored=true") != 1 || strings.Count(text, "stored=false") != 1 {
		t.Errorf("it stored the weights other than once: %s", text)
	}
}

// TestDeclaredDigest: with the digest as declared, nobody but the store computes that of the weights, once. So a server of another name, whose weights
// would be others, has those of the digest. What does not match is refused by the store, and by the server that would read beyond the weights.
func TestDeclaredDigest(t *testing.T) {
	folder := driver(t)
	short, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	socket := filepath.Join(short, "store.sock")
	env := []string{"LD_LIBRARY_PATH=" + folder, "FAKE_CUDA_SHARED=" + filepath.Join(folder, "account")}
	startStore(t, socket, env)
	declared := declaration(model.Table{Name: "resnet50", Weights: 5 << 20})
	other := declaration(model.Table{Name: "vit", Weights: 5 << 20})
	arguments := func(name, weights, declared string) []string {
		return []string{"--name", name, "--weights", weights, "--batch", "1=1ms", "--store", socket, "--declared", declared}
	}
	for _, test := range []struct{ name, stored string }{{"resnet50", "stored=true"}, {"vit", "stored=false"}} {
		p := start(t, folder, env, arguments(test.name, "5Mi", declared)...)
		if status, answer := p.post(t, "/", "hello"); status != http.StatusOK {
			t.Errorf("%s: %d, %s", test.name, status, answer)
		}
		_ = p.Process.Kill()
		if text := <-p.stderr; !strings.Contains(text, test.stored) {
			t.Errorf("%s: want %s: %s", test.name, test.stored, text)
		}
		_ = p.Wait() // until its memory is free
	}
	for name, test := range map[string]struct{ weights, declared, want string }{
		"another digest": {"5Mi", other, rules.ErrDigest.Error()},
		"another size":   {"4Mi", declared, "they are other weights"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", arguments("resnet50", test.weights, test.declared)...)
			cmd.Env = append(os.Environ(), append(env, asModel+"=1", "HOST=127.0.0.1", "PORT=0")...)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	if used := usedBytes(t, folder, env); used != 6<<20 {
		t.Errorf("%d bytes are in use, want those of the weights alone", used)
	}
}

// TestSecondLoad compares the copies of loads: with weights of its own a server copies them to the device; the first that uses a store does too, and
// the store reads them back for their digest; the second copies nothing. It prints what that makes of FaST-GShare's ViT_huge on the modelled V100.
func TestSecondLoad(t *testing.T) {
	folder := driver(t)
	short, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	simulation, err := fakegpu.New(fakegpu.Config{Socket: filepath.Join(folder, "gpu")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = simulation.Close() })
	socket := filepath.Join(short, "store.sock")
	env := []string{"LD_LIBRARY_PATH=" + folder, "FAKE_CUDA_SHARED=" + filepath.Join(folder, "account"), "FAKE_CUDA_SOCKET=" + filepath.Join(folder, "gpu"), "FAKE_CUDA_MODEL=V100"}
	startStore(t, socket, env)
	const weights = 32 << 20
	copies := func(arguments ...string) time.Duration {
		before := simulation.Totals()[0].Copies
		start(t, folder, env, append([]string{"--name", "vit", "--weights", "32Mi", "--batch", "1=1ms"}, arguments...)...)
		return simulation.Totals()[0].Copies - before
	}
	const once = weights / 12 * time.Nanosecond // 12 GB/s
	own, first, second := copies(), copies("--store", socket), copies("--store", socket)
	for name, load := range map[string]struct{ took, want time.Duration }{"own weights": {own, once}, "first": {first, 2 * once}, "second": {second, 0}} {
		if load.took < load.want || load.took > load.want+once/50 { // and 1 us to set each copy up
			t.Errorf("%s: copies of %v, want %v", name, load.took, load.want)
		}
	}
	const vit, before = 2634e6, 0.52 // bytes; seconds of the published loads before the weights
	seconds := func(copies time.Duration) float64 { return before + copies.Seconds()*vit/weights }
	t.Logf("ViT_huge: own weights %.2f s, first %.2f s, second %.2f s: %.2f times as fast as with its own (published: 1.68, 2.01, 0.76, 2.21)",
		seconds(own), seconds(first), seconds(second), seconds(own)/seconds(second))
}
