// Package native builds the C programs of the repository for tests: the hook, the fake driver and the C tests of the hook. All packages share
// one build, made by the first package that needs it, and get copies of it.
//
// Builds are kept in the folder gshare/native of the user's cache, under a hash of everything that they are made from: the sources and
// scripts, the versions of the compilers, and the flags in the environment. They are made from a copy of the hashed sources, so that a file
// which changes meanwhile, or which the hash does not cover, cannot get into them. System headers are not hashed: after updating only those,
// remove the folder.
package native

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Part is the output of one script.
type Part string

// The parts that can be built.
const (
	Driver    Part = "driver"     // the fake driver, its programs and the hook on the virtual clock
	Hook      Part = "hook"       // libgshare.so, libgshare-mps.so, gshare-drain, libgshare_store.so and gshare_*.py
	HookTests Part = "hook-tests" // the C tests of the hook, and Driver, with which they are linked
)

// scripts maps parts to the scripts that build them, which get the folder as an additional last argument.
var scripts = map[Part][]string{
	Driver: {"hook/fake/build.sh"}, Hook: {"hack/hook.sh", "build"}, HookTests: {"hook/test/build.sh"},
}

// compilers are the programs whose versions affect a build, in addition to $CC.
var compilers = []string{"gcc", "aarch64-linux-gnu-gcc", "ld"}

// variables are the environment variables that the scripts, gcc or ld read, except those for temporary files and the language of messages.
var variables = []string{
	"CC", "CFLAGS", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH", "LD_RUN_PATH", "SOURCE_DATE_EPOCH",
}

// kept is the number of builds of a part that stay in the cache: the most recently used ones.
const kept = 4

// Build puts the parts into a folder, which need not exist. It needs bash and gcc. root is the root of the checkout. The caller owns the
// files and may change them. If the user has no cache, or it cannot be written, the parts are compiled directly in the folder. An error
// contains the compiler's output.
func Build(root, folder string, parts ...Part) error {
	folder, err := filepath.Abs(folder) // the scripts change their working directory
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := p.build(root, folder); err != nil {
			return fmt.Errorf("build the %s: %w", p, err)
		}
	}
	return nil
}

func (p Part) build(root, folder string) error {
	files, err := sources(root)
	if err != nil {
		return err
	}
	lock, err := p.lock()
	if err != nil { // there is no cache
		return p.compile(root, folder, nil)
	}
	defer lock.Close()
	cache := filepath.Dir(lock.Name())
	entry := filepath.Join(cache, key(files))
	if err := os.Chtimes(entry, time.Time{}, time.Now()); errors.Is(err, fs.ErrNotExist) {
		if err := p.store(files, filepath.Join(cache, "new"), entry, lock); err != nil {
			return err
		}
	}
	prune(cache)
	return give(entry, folder)
}

// lock waits until no other process builds the part, or copies it out of the cache, and returns the locked file for the caller to close. The
// file's folder is the part's cache.
func (p Part) lock() (*os.File, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cache, "gshare", "native", string(p))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// sources returns the files that the parts are built from, by path: the scripts, and the folder hook without its Go files and documents. It
// opens all of them in the test process, so that go test knows that the test's results depend on them.
func sources(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	read := func(name string) (err error) {
		files[name], err = os.ReadFile(filepath.Join(root, name))
		return err
	}
	err := fs.WalkDir(os.DirFS(root), "hook", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || slices.Contains([]string{".go", ".md"}, path.Ext(name)) {
			return err
		}
		return read(name)
	})
	return files, cmp.Or(err, read("hack/hook.sh"))
}

// key returns the hash of sources, compiler versions and flags.
func key(files map[string][]byte) string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%q %q\n", name, files[name])
	}
	for _, name := range variables {
		fmt.Fprintf(hash, "%s=%q\n", name, os.Getenv(name))
	}
	for _, name := range append([]string{cmp.Or(os.Getenv("CC"), "gcc")}, compilers...) {
		version, err := exec.Command(name, "--version").CombinedOutput()
		fmt.Fprintf(hash, "%s: %q %v\n", name, version, err) // an error for a compiler that is not installed, which the scripts can do without
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:16])
}

// store builds a part from the sources in a work folder, and moves the complete build to its place in the cache.
func (p Part) store(files map[string][]byte, work, entry string, lock *os.File) error {
	if err := os.RemoveAll(work); err != nil { // left by a build that was killed
		return err
	}
	defer os.RemoveAll(work)
	root, out := filepath.Join(work, "source"), filepath.Join(work, "out")
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	if err := p.compile(root, out, lock); err != nil {
		return err
	}
	return os.Rename(out, entry)
}

// compile runs the script of a part. The script inherits the lock, if there is one: it may outlive this process, and nobody else may write
// into its folder until then.
func (p Part) compile(root, folder string, lock *os.File) error {
	if p == HookTests {
		if err := Build(root, folder, Driver); err != nil {
			return err
		}
	}
	command := exec.Command("bash", append(slices.Clone(scripts[p]), folder)...)
	command.Dir = root
	if lock != nil {
		command.ExtraFiles = []*os.File{lock}
	}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// give copies a build into a folder. A separate process does the copying: if this process had a program open for writing while another
// goroutine forks, the child would inherit the descriptor, and the program could not be executed until the child calls execve ("text file
// busy").
func give(entry, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	out, err := exec.Command("cp", "-R", "--remove-destination", entry+"/.", folder).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy it from the cache: %w\n%s", err, out)
	}
	return nil
}

// prune removes the builds in a cache, except the most recently used ones. What cannot be read or removed stays.
func prune(cache string) {
	entries, _ := os.ReadDir(cache)
	var builds []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.IsDir() {
			builds = append(builds, info)
		}
	}
	slices.SortFunc(builds, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, build := range builds[min(kept, len(builds)):] {
		_ = os.RemoveAll(filepath.Join(cache, build.Name()))
	}
}
