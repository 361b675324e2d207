package hookfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/test/fake/hook"
	"github.com/gshare-dev/gshare/test/native"
)

// TestCheck tries files that are not the hook, and what a build makes.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	hook.Write(t, path("good.so"))
	hook.Compile(t, path("no-name.so"), "void cuLaunchKernel(void) {}")
	hook.Compile(t, path("no-function.so"), "", "-Wl,-soname,libgshare.so")
	hook.Compile(t, path("caller.so"), "void cuLaunchKernel(void); void f(void) { cuLaunchKernel(); }", "-Wl,-soname,libgshare.so")
	content, err := os.ReadFile(path("good.so"))
	if err != nil {
		t.Fatal(err)
	}
	changed := func(offset int, value byte) string {
		c := append([]byte(nil), content...)
		c[offset] = value
		return string(c)
	}
	for name, text := range map[string]string{
		"empty": "", "text": "root:x:0:0::/root:/bin/sh\n", "magic": "\x7fELF", "half": string(content[:len(content)/2]),
		"header": string(content[:64]), "sparc": changed(18, 2), "32-bit": changed(4, 1), "program": changed(16, 1),
		"short": string(content[:len(content)-1]),
	} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"good.so": "", "no-name.so": "another library", "no-function.so": "does not wrap", "caller.so": "does not wrap", "empty": "no library",
		"text": "no library", "magic": "no library", "half": "no library", "header": "no library", "sparc": "another machine", "32-bit": "no library",
		"program": "no library for", "short": "no library", "pipe": "no file", "missing": "no such file", ".": "no file",
	} {
		t.Run(name, func(t *testing.T) { expect(t, Check(path(name)), want) })
	}
}

// TestBuilt accepts the hook that a build makes, and no other library of the build.
func TestBuilt(t *testing.T) {
	dir := t.TempDir()
	if err := native.Build("../..", dir, native.Hook); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		Name: "", "libgshare-mps.so": "another library", "libgshare_store.so": "another library", "gshare-drain": "no library for", "gshare_store.py": "no library",
	} {
		t.Run(name, func(t *testing.T) { expect(t, CheckPreload(filepath.Join(dir, name)), want) })
	}
	other := filepath.Join(dir, "libgshare-aarch64.so")
	if _, err := os.Stat(other); err == nil && runtime.GOARCH == "amd64" { // there was a cross compiler
		t.Run("aarch64", func(t *testing.T) { expect(t, Check(other), "another machine") })
	}
}

// TestPathOfPreload: the loader preloads a file exactly from the paths that are accepted.
func TestPathOfPreload(t *testing.T) {
	for _, name := range []string{"plain", "a b", "a:b", "a$LIB", "a\tb", "a\nb", "ä,;'\"\\%b"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			hook.Write(t, path)
			program := exec.Command("cat", "/proc/self/maps")
			program.Env = append(os.Environ(), "LD_PRELOAD="+path)
			maps, err := program.Output()
			if err != nil {
				t.Fatal(err)
			}
			err = CheckPreload(path)
			if loaded := strings.Contains(string(maps), strings.ReplaceAll(path, "\n", `\012`)); loaded != (err == nil) {
				t.Errorf("loaded: %v; %v", loaded, err)
			}
		})
	}
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
