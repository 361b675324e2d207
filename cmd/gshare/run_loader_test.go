package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// program returns an ELF file that names a loader, or none.
func program(loader string) []byte {
	header := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	interp := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 120, Filesz: uint64(len(loader) + 1)}
	if loader == "" {
		interp.Type = uint32(elf.PT_NOTE)
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, header)
	_ = binary.Write(&b, binary.LittleEndian, interp)
	b.WriteString(loader + "\x00")
	return b.Bytes()
}

func TestForeignLoader(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	t.Setenv("PATH", dir)
	musl := "ld-musl-x86_64.so.1"
	for _, c := range []struct {
		name, contents, want string
	}{
		{"glibc", string(program("/lib64/ld-linux-x86-64.so.2")), ""},
		{"glibc-nix", string(program("/nix/store/x-glibc-2.40/lib/ld-linux-x86-64.so.2")), ""},
		{"power", string(program("/lib64/ld64.so.2")), ""},
		{"static", string(program("")), ""},
		{"script-of-static", "#!" + path("static") + "\n", ""},
		{"musl", string(program("/lib/" + musl)), musl},
		{"android", string(program("/system/bin/linker64")), "linker64"},
		{"script", "#! " + path("musl") + " -e\necho", musl},
		{"script-of-script", "#!" + path("script"), musl},
		{"env", "#!/usr/bin/env musl\n", musl},
		{"env-s", "#!/usr/bin/env -S A=b musl -x\n", musl},
		{"env-missing", "#!/usr/bin/env no-such-program\n", ""},
		{"script-of-glibc", "#!" + path("glibc") + "\n", ""},
		{"loop", "#!" + path("loop") + "\n", ""},
		{"no-interpreter", "#!\n", ""},
		{"text", "echo", ""},
		{"cut", string(program("/lib/" + musl)[:100]), ""},
		{"empty", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path(c.name), []byte(c.contents), 0o755); err != nil {
				t.Fatal(err)
			}
			if got, static := foreignLoader(path(c.name)); got != c.want || static != strings.HasSuffix(c.name, "static") {
				t.Errorf("loader %q, static: %v; want %q", got, static, c.want)
			}
		})
	}
}

func TestWithoutHook(t *testing.T) {
	for memory, want := range map[string]string{"hook": "no limit", "hook, MPS": "MPS", "dmem (1024 MiB), hook, MPS namespace": "dmem (1024 MiB), MPS namespace"} {
		if got := withoutHook(memory); got != want {
			t.Errorf("%q without the hook: %q, want %q", memory, got, want)
		}
	}
}

// TestRunSaysUnhooked: gshare run says at once, and gshare ps as long as the program runs, that it has no hook.
func TestRunSaysUnhooked(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	m := newMachine(t)
	file := filepath.Join(t.TempDir(), "static")
	compile := exec.Command("gcc", "-static", "-x", "c", "-", "-o", file)
	compile.Stdin = strings.NewReader("#include <unistd.h>\nint main(void) { char c; return read(0, &c, 1) != 1; }\n")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd, out := m.run(t, "--sm", "30", "--mem", "1Gi", "--", file)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		cmd, out := m.command(t, "ps")
		return cmd.Run() == nil && strings.Contains(out.String(), "starting, unhooked: statically linked")
	})
	_, _ = input.Write([]byte("x"))
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "static is not limited in time: it is statically linked") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestState(t *testing.T) {
	used := control.VGPU{Processes: []control.Process{{PID: 1}}}
	for want, test := range map[string]struct {
		vgpu control.VGPU
		run  control.Run
	}{
		"starting":                   {control.VGPU{}, control.Run{}},
		"refused":                    {control.VGPU{}, control.Run{Refused: "x", SelfPaced: 1}},
		"idle":                       {used, control.Run{}},
		"idle, some refused":         {used, control.Run{Refused: "x"}},
		"running, 2 self-paced":      {control.VGPU{Running: true}, control.Run{SelfPaced: 2}},
		"waiting":                    {control.VGPU{Waiting: 1}, control.Run{}},
		"starting, unhooked: static": {control.VGPU{}, control.Run{Unhooked: "static"}},
		"idle, 1 self-paced, some refused, unhooked: musl": {used, control.Run{SelfPaced: 1, Refused: "x", Unhooked: "musl"}},
	} {
		if got := stateOf(test.vgpu, &test.run); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
