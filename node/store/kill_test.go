package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/store/client"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// The test binary is also the store and its clients, which kill themselves at a step.
const (
	roleVariable = "GSHARE_TEST_STORE_ROLE"
	stepVariable = "GSHARE_TEST_STORE_STEP" // counted from 1; 0: never
)

const (
	weightsBytes = 5 * share.MiB
	weightsSize  = 6 * share.MiB // in device memory
)

// weights are those that clients of these tests share.
func weights() []byte { return bytes.Repeat([]byte("weights!"), int(weightsBytes)/8) }

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	left, _ := strconv.Atoi(os.Getenv(stepVariable))
	s := &steps{left: left}
	err := map[string]func(*steps, []string) error{"store": runStore, "load": runLoad, "read": runRead, "digest": runDigest}[role](s, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// steps counts what a process does, and kills it at one step.
type steps struct {
	mu   sync.Mutex
	left int
}

func (s *steps) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left != 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// crashing is device memory whose user may be killed before and after each call.
type crashing struct {
	cuda.Device
	*steps
}

func (c crashing) Create(size share.Bytes) (cuda.Handle, error) {
	c.pass()
	defer c.pass()
	return c.Device.Create(size)
}

func (c crashing) Export(h cuda.Handle) (*os.File, error) {
	c.pass()
	defer c.pass()
	return c.Device.Export(h)
}

func (c crashing) Release(h cuda.Handle) error {
	c.pass()
	defer c.pass()
	return c.Device.Release(h)
}

// runStore serves a store at a socket. When it is sent a line it says how many bytes it has. If the line is "evict", it
// drops what it can before; if it is "idle" and something is in use, it says "busy"; if it is "users", it says how many leases there are.
func runStore(s *steps, arguments []string) error {
	device, err := cuda.Open()
	if err != nil {
		return err
	}
	helper := Helper("env", roleVariable+"=digest", "/proc/"+strconv.Itoa(os.Getpid())+"/exe")
	server := New(Options{
		Namespace: "team", Capacity: 64 * share.MiB, Memory: crashing{device, s}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Identify: func(process.Process) (string, error) { return "team", nil },
		Digest: func(ctx context.Context, memory *os.File, size, bytes share.Bytes) (rules.Digest, error) {
			s.pass()
			defer s.pass()
			return helper(ctx, memory, size, bytes)
		},
	})
	listener, err := unixsocket.Listen("unixpacket", arguments[0], 0o600, unixsocket.NewLimiter())
	if err != nil {
		return err
	}
	fmt.Println("ready")
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel() // the test has ended
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if lines.Text() == "evict" {
				server.Evict(64 * share.MiB)
			}
			var sum share.Bytes
			users, busy := 0, false
			for _, e := range server.Entries() {
				sum += e.Size
				users += e.Users
				busy = busy || e.Users > 0 || e.State != rules.Committed
			}
			if busy && lines.Text() == "idle" {
				fmt.Println("busy")
				continue
			}
			if lines.Text() == "users" {
				fmt.Println(users)
				continue
			}
			fmt.Println(int64(sum))
		}
	}()
	return server.Serve(ctx, listener)
}

// runLoad loads the weights from the store at a socket, and says so. It reads them again whenever it is sent a line.
func runLoad(s *steps, arguments []string) error {
	device, err := cuda.Open()
	if err != nil {
		return err
	}
	s.pass()
	c, err := client.Dial(context.Background(), arguments[0])
	if err != nil {
		return err
	}
	defer c.Close() // or the garbage collector ends the lease
	s.pass()
	k := rules.Key{Digest: sha256.Sum256(weights())}
	m, _, err := c.Load(context.Background(), device, k, weightsBytes, func(write client.Write) error {
		s.pass() // the memory is mapped
		defer s.pass()
		for at := share.Bytes(0); at < weightsBytes; at += share.MiB {
			if err := write(at, weights()[at:at+share.MiB]); err != nil {
				return err
			}
			s.pass()
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.pass()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		digest, err := device.Digest(m, weightsBytes)
		if err != nil {
			return err
		}
		if digest != k.Digest {
			return rules.ErrDigest
		}
		if device.Write(m, 0, []byte("changed")) == nil {
			return fmt.Errorf("it could write")
		}
		fmt.Println("same")
	}
	return nil
}

// machine is a device with the processes that use it.
type machine struct {
	folder  string // of the driver
	account string
	socket  string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	folder, err := os.MkdirTemp("", "gs") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := native.Build("../..", folder, native.Driver); err != nil {
		t.Fatal(err)
	}
	return machine{folder, filepath.Join(folder, "account"), filepath.Join(folder, "store.sock")}
}

// program is a running process of a role.
type program struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	errors *bytes.Buffer
}

// start starts the test binary in a role, and waits until it is ready or has ended. Being killed at a step counts as ended.
func (m machine) start(t *testing.T, role string, step int) (p program, ready bool) {
	t.Helper()
	p = program{Cmd: exec.Command("/proc/self/exe", m.socket), errors: &bytes.Buffer{}}
	p.Env = append(os.Environ(), roleVariable+"="+role, stepVariable+"="+strconv.Itoa(step), "LD_LIBRARY_PATH="+m.folder, "FAKE_CUDA_SHARED="+m.account)
	p.Stderr = p.errors
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	return p, p.out.Scan() && p.out.Text() == "ready"
}

// kill kills the process and returns when it has ended.
func (p program) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// ask sends a line and returns the answer; it is empty if the process has ended.
func (p program) ask(line string) string {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil || !p.out.Scan() {
		return ""
	}
	return p.out.Text()
}

// used returns what the driver counts of the device's memory.
func (m machine) used(t *testing.T) share.Bytes {
	t.Helper()
	cmd := exec.Command(filepath.Join(m.folder, "linked"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+m.folder, "FAKE_CUDA_SHARED="+m.account)
	out, err := cmd.Output()
	var left, total share.Bytes
	if _, scanned := fmt.Sscanf(string(out), "ok %d %d", &left, &total); err != nil || scanned != nil {
		t.Fatalf("%q: %v, %v", out, err, scanned)
	}
	return total - left - 64*share.MiB // which it takes itself
}

// awaitUsed waits until the driver counts so much.
func (m machine) awaitUsed(t *testing.T, want share.Bytes, when string) {
	t.Helper()
	got := m.used(t)
	for deadline := time.Now().Add(20 * time.Second); got != want && time.Now().Before(deadline); got = m.used(t) {
		time.Sleep(5 * time.Millisecond) // the store sees the end of a connection, and the driver that of a process, a little later
	}
	if got != want {
		t.Fatalf("%s: the driver counts %d bytes, want %d", when, got, want)
	}
}

// TestShared checks that three programs have one copy of the weights, which none of them can write.
func TestShared(t *testing.T) {
	m := newMachine(t)
	store, ready := m.start(t, "store", 0)
	if !ready {
		t.Fatal(store.errors)
	}
	var clients []program
	for range 3 {
		c, ready := m.start(t, "load", 0)
		if !ready {
			t.Fatal(c.errors)
		}
		clients = append(clients, c)
		m.awaitUsed(t, weightsSize, "loaded")
	}
	for _, c := range clients {
		if answer := c.ask("read"); answer != "same" {
			t.Errorf("%s %s", answer, c.errors)
		}
		c.kill()
	}
	if answer := store.ask("used"); answer != strconv.FormatInt(int64(weightsSize), 10) {
		t.Errorf("the store has %s bytes without users", answer)
	}
	m.awaitUsed(t, weightsSize, "without users")
	for store.ask("evict") != "0" { // until it has seen the ends of all connections
		time.Sleep(time.Millisecond)
	}
	m.awaitUsed(t, 0, "evicted")
}

// TestStoreKilled kills the store at each of its steps. What a client has loaded stays, and can be read, until the client ends; nothing else
// is left. The next store begins empty.
func TestStoreKilled(t *testing.T) {
	m := newMachine(t)
	survived := false
	for step := 1; !survived; step++ {
		store, ready := m.start(t, "store", step)
		if !ready {
			t.Fatal(store.errors)
		}
		first, loaded := m.start(t, "load", 0)
		second, both := m.start(t, "load", 0)
		survived = store.ask("used") != ""
		store.kill()
		when := fmt.Sprintf("the store is killed at step %d: %v, %v", step, loaded, both)
		if both && !loaded {
			t.Error(when)
		}
		if survived && !both {
			t.Errorf("the store was not killed at step %d, but %s%s", step, first.errors, second.errors)
		}
		for _, c := range []program{first, second} {
			if !loaded || (c == second && !both) {
				c.kill()
				continue
			}
			m.awaitUsed(t, weightsSize, when)
			if answer := c.ask("read"); answer != "same" {
				t.Errorf("%s: %s %s", when, answer, c.errors)
			}
		}
		next, ready := m.start(t, "store", 0)
		if !ready || next.ask("used") != "0" {
			t.Fatalf("%s: the next store: %s", when, next.errors)
		}
		first.kill()
		second.kill()
		m.awaitUsed(t, 0, when)
		next.kill()
		if step > 100 {
			t.Fatal("the store never runs through")
		}
	}
}

// TestClientKilled kills a client at each of its steps, and then what the driver counts is what the store has: nothing of a client that had not
// committed, all of one that had. The next client loads the weights all the same.
func TestClientKilled(t *testing.T) {
	m := newMachine(t)
	store, ready := m.start(t, "store", 0)
	if !ready {
		t.Fatal(store.errors)
	}
	killed, kept := 0, 0
	for step, survived := 1, false; !survived; step++ {
		var c program
		c, survived = m.start(t, "load", step)
		c.kill()
		if !survived && !strings.Contains(c.ProcessState.String(), "killed") {
			t.Fatalf("step %d: %v, %s", step, c.ProcessState, c.errors)
		}
		killed++
		var answer string
		for answer = store.ask("idle"); answer == "busy"; answer = store.ask("idle") { // until it has seen the end of the connection
			time.Sleep(time.Millisecond)
		}
		ledger, err := strconv.ParseInt(answer, 10, 64)
		if err != nil {
			t.Fatal(answer)
		}
		if ledger > 0 {
			kept++
		}
		m.awaitUsed(t, share.Bytes(ledger), fmt.Sprintf("step %d", step))
		next, ready := m.start(t, "load", 0)
		if !ready {
			t.Fatalf("step %d: the next client: %s", step, next.errors)
		}
		m.awaitUsed(t, weightsSize, fmt.Sprintf("step %d, the next client", step))
		next.kill()
		for store.ask("evict") != "0" {
			time.Sleep(time.Millisecond)
		}
		m.awaitUsed(t, 0, fmt.Sprintf("step %d, evicted", step))
	}
	if killed < 8 || kept < 1 || kept == killed {
		t.Errorf("of %d clients that were killed, %d had stored the weights", killed, kept)
	}
}

// TestLibrary lets a C program store weights and another one read them, by libgshare_store.so.
func TestLibrary(t *testing.T) {
	m := newMachine(t)
	store, ready := m.start(t, "store", 0)
	if !ready {
		t.Fatal(store.errors)
	}
	const text = "a text of weights"
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	for _, test := range []struct{ name, socket, text, want string }{
		{"no store", m.socket + "x", text, "open: No such file or directory\n"},
		{"another text", m.socket, "no such text", "commit: the weights have another digest than they were stored under\n"},
		{"absent", m.socket, text, "stored " + text + "\n"},
		{"present", m.socket, "not used", "read " + text + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(m.folder, "weights"), test.socket, digest, test.text)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+m.folder, "FAKE_CUDA_SHARED="+m.account)
			if out, err := cmd.CombinedOutput(); string(out) != test.want {
				t.Errorf("%q, %v, want %q", out, err, test.want)
			}
		})
	}
	m.awaitUsed(t, 2*share.MiB, "stored")
}

// TestPython lets a Python program store weights and another one read them, by gshare_store.py.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	m := newMachine(t)
	store, ready := m.start(t, "store", 0)
	if !ready {
		t.Fatal(store.errors)
	}
	for _, verb := range []string{"stored", "read"} {
		cmd := exec.Command(python, "../../hook/fake/programs/weights.py", m.socket, "a text of weights, as Python has them")
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+m.folder, "FAKE_CUDA_SHARED="+m.account)
		out, err := cmd.CombinedOutput()
		if want := verb + " a text of weights, as Python has them 4 (2, 2) <f4\n"; string(out) != want {
			t.Errorf("%q, %v, want %q", out, err, want)
		}
	}
	m.awaitUsed(t, 2*share.MiB, "stored")
}

// TestSafetensors: the tensors of a file are on the device as they are in the file, and a second program has them without another copy.
func TestSafetensors(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	m := newMachine(t)
	store, ready := m.start(t, "store", 0)
	if !ready {
		t.Fatal(store.errors)
	}
	const header = `{"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	file := filepath.Join(t.TempDir(), "model.safetensors")
	for _, content := range []string{"eightBY.four", "eightBY.four", "another.file"} {
		text := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+content...)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "../../hook/fake/programs/tensors.py", m.socket, file)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+m.folder, "FAKE_CUDA_SHARED="+m.account)
		out, err := cmd.CombinedOutput()
		if want := fmt.Sprintf("a F32 <f4 (2,) %s\nb BF16 <i2 (2, 1) %s\n", content[:8], content[8:]); string(out) != want {
			t.Errorf("%q, %v, want %q", out, err, want)
		}
	}
	m.awaitUsed(t, 4*share.MiB, "two files")
}
