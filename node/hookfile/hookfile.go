// Package hookfile checks that a file is the hook, libgshare.so. The loader of a program ignores a file that it cannot preload, and loads any
// other library: either way the program runs without limits.
package hookfile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Name is the name of the hook's file, and the name that the file has for the linker.
const Name = "libgshare.so"

// wrapped is a function that every hook wraps.
const wrapped = "cuLaunchKernel"

// machines holds the ELF machine of each architecture that the hook is built for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Check returns an error unless the file is the hook for programs of this machine.
func Check(path string) error {
	if why := check(path); why != nil {
		return fmt.Errorf("%s is not the hook (%s): %w", path, Name, why)
	}
	return nil
}

// CheckPreload also returns an error if the hook cannot be preloaded from this path by a program of this process.
func CheckPreload(path string) error {
	if err := Check(path); err != nil {
		return err
	}
	if strings.ContainsAny(path, " :$") {
		return fmt.Errorf("%q cannot be preloaded: LD_PRELOAD takes no path with a blank, a colon or a dollar sign", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	memory, err := syscall.Mmap(int(file.Fd()), 0, 1, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("%s cannot be preloaded, as from a file system mounted noexec: %w", path, err)
	}
	return syscall.Munmap(memory)
}

func check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // reading a pipe would block
		return errors.New("it is no file")
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	library, err := elf.NewFile(file)
	if _, malformed := errors.AsType[*elf.FormatError](err); malformed || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is no library, or only a part of one")
	}
	if err != nil {
		return err
	}
	defer library.Close()
	return checkLibrary(library, info.Size())
}

func checkLibrary(library *elf.File, size int64) error {
	if want, ok := machines[runtime.GOARCH]; ok && library.Machine != want {
		return fmt.Errorf("it is for another machine, %v", library.Machine)
	}
	if library.Class != elf.ELFCLASS64 || library.ByteOrder != binary.ByteOrder(binary.LittleEndian) || library.Type != elf.ET_DYN {
		return errors.New("it is no library for 64-bit programs")
	}
	for _, p := range library.Progs {
		if p.Type == elf.PT_LOAD && (p.Off > uint64(size) || p.Filesz > uint64(size)-p.Off) {
			return errors.New("it is only a part of a library")
		}
	}
	names, err := library.DynString(elf.DT_SONAME)
	if err != nil || !slices.Contains(names, Name) {
		return errors.New("it is another library")
	}
	symbols, err := library.DynamicSymbols()
	if err != nil || !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == wrapped && s.Section != elf.SHN_UNDEF }) {
		return fmt.Errorf("it does not wrap %s", wrapped)
	}
	return nil
}
