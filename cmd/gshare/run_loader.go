//go:build linux

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// scriptDepth is how many interpreters of interpreters are followed; the kernel follows about as many.
const scriptDepth = 5

// foreignLoader returns the name of the loader of a program, or of the interpreter of a script, if it is another than glibc's, such as
// ld-musl-x86_64.so.1. Such a loader ends a program whose LD_PRELOAD has a library that needs glibc. It returns "" for what cannot be read, and
// reports whether the program is statically linked, and so has no loader.
func foreignLoader(program string) (name string, static bool) {
	for range scriptDepth {
		file, err := os.Open(program)
		if err != nil {
			return "", false
		}
		next, isScript := scriptInterpreter(file)
		loader, err := loaderOf(file)
		file.Close()
		if !isScript {
			name := filepath.Base(loader)
			if loader == "" || strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld64.so") || strings.HasPrefix(name, "ld.so") {
				return "", loader == "" && err == nil
			}
			return name, false
		}
		program = next
	}
	return "", false
}

// scriptInterpreter returns the program that runs a script, which is that behind env where the first line has env. It reports whether the file
// is a script.
func scriptInterpreter(file *os.File) (string, bool) {
	line, err := bufio.NewReader(io.NewSectionReader(file, 0, 256)).ReadString('\n')
	if text, ok := strings.CutPrefix(line, "#!"); ok && (err == nil || err == io.EOF) {
		words := strings.Fields(text)
		if len(words) == 0 {
			return "", true
		}
		if filepath.Base(words[0]) == "env" {
			for _, word := range words[1:] {
				if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
					words[0], _ = exec.LookPath(word)
					break
				}
			}
		}
		return words[0], true
	}
	return "", false
}

// loaderOf returns the loader that an ELF file names; "" if it names none.
func loaderOf(file *os.File) (string, error) {
	program, err := elf.NewFile(file)
	if err != nil {
		return "", err
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			path := make([]byte, min(p.Filesz, 4096))
			n, _ := p.ReadAt(path, 0)
			path, _, _ = bytes.Cut(path[:n], []byte{0})
			return string(path), nil
		}
	}
	return "", nil
}

// withoutHook returns what still limits memory of the mechanisms in an enforcement status where the hook does not.
func withoutHook(memory string) string {
	left := slices.DeleteFunc(strings.Split(memory, ", "), func(mechanism string) bool { return mechanism == "hook" })
	if len(left) == 0 {
		return "no limit"
	}
	return strings.Join(left, ", ")
}
