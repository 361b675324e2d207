package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestParseBorn(t *testing.T) {
	const tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	for _, name := range []string{"cat", "a b", ") R 1", ""} {
		if got, err := parseStartTime("12 (" + name + ")" + tail); err != nil || got != 4711 {
			t.Errorf("%q: got %d, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "12 (cat", "12 (cat) S 1 2"} {
		if got, err := parseStartTime(text); err == nil {
			t.Errorf("%q: got %d", text, got)
		}
	}
	if own, err := StartTime(os.Getpid()); err != nil || own == 0 {
		t.Errorf("own process: %d, %v", own, err)
	}
}

func TestParseMapped(t *testing.T) {
	const maps = `7f01-7f02 r--p 00000000 fd:01 77 /usr/lib/libnvidia-opencl.so.535.1
7f02-7f03 r-xp 00001000 fd:01 77 /usr/lib/libnvidia-opencl.so.535.1
7f03-7f04 rw-p 00000000 00:00 0
7f04-7f05 r-xp 00000000 fd:01 78 /opt/my libs/libc.so.6 (deleted)
7f05-7f06 r-xp 00000000 fd:01 79 /usr/bin/python3
7f06-7f07 rw-p 00000000 00:00 0 [heap]
7f07-7f08 rw-s 00000000 00:05 3 /dev/nvidia0
7f08-7f09 r--p 00002000 fd:01 77 /usr/lib/libnvidia-opencl.so.535.1
`
	got := parseMapped(maps)
	if want := []string{"libnvidia-opencl.so.535.1", "libc.so.6"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := parseMapped(""); got != nil {
		t.Errorf("nothing mapped: got %q", got)
	}
}

// TestHostileNames: a container names its programs and libraries as it likes, and the agent writes the names into events and statuses.
func TestHostileNames(t *testing.T) {
	const maps = "7f01-7f02 r--p 00000000 fd:01 77 /lib/libcuda.so\x1b[2J\u009b1A\xff.1\n"
	if got, want := parseMapped(maps), []string{"libcuda.so?[2J?1A\ufffd.1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for file, want := range map[string]string{"/bin/a\r\nkilled": "a??killed", "/opt/é (deleted)": "é", "/x/\x1b]0;t\a": "?]0;t?"} {
		if got := fileName(file); got != want {
			t.Errorf("%q: got %q, want %q", file, got, want)
		}
	}
}

// FuzzBorn: the name of a process may hold anything, and does not move the field.
func FuzzBorn(f *testing.F) {
	f.Add("cat", uint64(77))
	f.Add("a) S 1 2 (b", uint64(1<<63))
	f.Add(") ", uint64(0))
	f.Fuzz(func(t *testing.T, name string, start uint64) {
		got, err := parseStartTime(fmt.Sprintf("12 (%s) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20", name, start))
		if err != nil || got != start {
			t.Errorf("got %d, %v; want %d", got, err, start)
		}
		_, _ = parseStartTime(name) // whatever it says, it ends
	})
}

func TestProgram(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sleep") // by a name of one's own: it may be a part of a larger program
	if err := os.WriteFile(file, text, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	if got := Program(cmd.Process.Pid); got != "sleep" {
		t.Errorf("%q, want sleep", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := Program(cmd.Process.Pid); got != "sleep" {
		t.Errorf("%q after the file is gone, want sleep", got)
	}
	if got := Program(1 << 30); got != "" {
		t.Errorf("nobody runs %q", got)
	}
}

func TestUser(t *testing.T) {
	if got, err := User(os.Getpid()); err != nil || got != os.Getuid() {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := User(1 << 30); err == nil {
		t.Error("nobody has a user")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can play another user")
	}
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	if got, err := User(other.Process.Pid); err != nil || got != 4711 {
		t.Errorf("%d, %v", got, err)
	}
}

// TestParseUsers: a program may have any name, as far as the kernel writes it.
func TestParseUsers(t *testing.T) {
	want := []int{4711, 0, 1, 2}
	if got, err := parseUsers("Name:\tUid: 0 0 0 0\nUmask:\t0022\nUid:\t4711\t0\t1\t2\n"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{"", "Name:\ta\n", "Uid:\tx\t0\t0\t0\n"} {
		if got, err := parseUsers(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// TestPeerThatHasEnded checks that a process is not taken for a peer whose PID it has got, if another user runs it.
func TestPeerThatHasEnded(t *testing.T) {
	own := os.Getpid()
	p, err := openPeer(own, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != own || !p.Alive() {
		t.Errorf("%+v is another process", p)
	}
	p.Close()
	if p, err := openPeer(own, 4711); err == nil {
		p.Close()
		t.Error("a process of another user is taken for the peer")
	}
}

// TestMapsAreBounded maps a file whose path is long as often as it takes to make the list of mappings longer than what is read of it.
func TestMapsAreBounded(t *testing.T) {
	dir := t.TempDir()
	for len(dir) < 3500 {
		dir = filepath.Join(dir, strings.Repeat("x", 200))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "lib.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := MappedLibraries(os.Getpid()); err != nil {
		t.Fatal("control: ", err)
	}
	for range 1500 {
		page, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Munmap(page) }()
	}
	if libraries, err := MappedLibraries(os.Getpid()); !errors.Is(err, ErrTooLong) || !slices.Contains(libraries, "lib.so") {
		t.Errorf("%d libraries, %v", len(libraries), err)
	}
	if text, _ := ReadFile(os.Getpid(), "maps"); len(text) != maxFile {
		t.Errorf("read %d bytes", len(text))
	}
}
