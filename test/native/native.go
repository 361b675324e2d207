// Package native builds the C programs of the repository for tests: the hook, the fake driver and the C tests of the hook. All packages share
// one build, which the first of them makes, and get copies of it.
//
// Builds are kept in the folder gshare/native of the user's cache, under the hash of all that they are made of: the sources and scripts, the
// versions of the compilers, and the flags in the environment. They are made of a copy of the sources that were hashed, so that a file which
// changes meanwhile, or which the hash does not cover, cannot get into them. Headers of the system are not hashed: after an update of these
// alone, remove the folder.
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

// Part is what one script builds.
type Part string

// The parts.
const (
	Driver    Part = "driver"     // the fake driver, its programs and the hook on the virtual clock
	Hook      Part = "hook"       // libgshare.so, libgshare-mps.so, libgshare_store.so and gshare_*.py
	HookTests Part = "hook-tests" // the C tests of the hook, and Driver, with which they are linked
)

// scripts are called with the folder as last argument.
var scripts = map[Part][]string{
	Driver: {"hook/fake/build.sh"}, Hook: {"hack/hook.sh", "build"}, HookTests: {"hook/test/build.sh"},
}

// compilers are the programs besides $CC whose versions matter.
var compilers = []string{"gcc", "aarch64-linux-gnu-gcc", "ld"}

// variables are those of the environment that the scripts, gcc or ld read, but for where temporary files are and the language of messages.
var variables = []string{
	"CC", "CFLAGS", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH", "LD_RUN_PATH", "SOURCE_DATE_EPOCH",
}

// kept is how many builds of a part stay in the cache: those used last.
const kept = 4

// Build puts parts into a folder, which need not exist. It needs bash and gcc. root is the root of the checkout. The files are the caller's
// own and may be changed. Where the user has no cache or it cannot be written, they are compiled in the folder. An error has the output of
// the compiler.
func Build(root, folder string, parts ...Part) error {
	folder, err := filepath.Abs(folder) // scripts change their working folder
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

// lock waits until no other process builds the part, or copies it out of the cache, and returns the file to close. The cache of the part is
// the folder of the file.
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

// sources returns what the parts are built from, by path: the script of the hook, and the folder hook without its Go files and documents.
// Since it opens them all in the process of the test, go test knows that the results of the test depend on them.
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

// key returns the hash of sources, compilers and flags.
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
		fmt.Fprintf(hash, "%s: %q %v\n", name, version, err) // an error for one that is not installed, which the scripts do without
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:16])
}

// store builds a part from sources in a work folder, and moves it into its place in the cache when it is complete.
func (p Part) store(files map[string][]byte, work, entry string, lock *os.File) error {
	if err := os.RemoveAll(work); err != nil { // of a build that was killed
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

// compile runs the script of a part. The script holds the lock too, if there is one: it may outlive this process, and nobody else shall write
// into its folder then.
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

// give copies a build into a folder. It leaves that to a process of its own: had this one a program open for writing while another
// goroutine starts a process, the program could not be run until that process executes ("text file busy").
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

// prune removes the builds in a cache, except those used last. What cannot be read or removed stays.
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
