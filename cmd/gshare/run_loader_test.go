package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
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
			if got := foreignLoader(path(c.name)); got != c.want {
				t.Errorf("loader %q, want %q", got, c.want)
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
