//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/node/hookfile"
)

// init keeps the main function on the main thread, for gshare run: the signal that a process gets when its parent ends (PR_SET_PDEATHSIG) belongs
// to a thread, so a program that another thread executes would outlive its parent.
func init() { runtime.LockOSThread() }

// findHook returns the path of the hook that is preloaded into the program: the given path, or else that next to this executable. A file that
// the program would not load, or that is not the hook, is an error.
func findHook(name string) (string, error) {
	if name != "" {
		absolute, err := filepath.Abs(name)
		if err == nil {
			err = hookfile.CheckPreload(absolute)
		}
		if err != nil {
			return "", cli.Usagef("--hook: %w", err)
		}
		return absolute, nil
	}
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	hook, err := hookOf(filepath.Dir(own))
	if err != nil {
		return "", err
	}
	return hook, hookfile.CheckPreload(hook)
}

// hookOf returns the path of the library that is installed with the executable in a directory.
func hookOf(dir string) (string, error) {
	places := []string{ // the third is for /usr/local/bin, where the archive of a release has this program
		filepath.Join(dir, hookfile.Name), filepath.Join(dir, "..", "lib", hookfile.Name), filepath.Join(dir, "..", "..", "lib", "gshare", hookfile.Name),
		filepath.Join(dir, "bin", hookfile.Name),
	}
	for _, place := range places {
		if _, err := os.Stat(place); err == nil {
			return filepath.Clean(place), nil
		}
	}
	return "", fmt.Errorf("%s not found in %s; set its path with --hook", hookfile.Name, strings.Join(places, ", "))
}

// preloadValue returns the value of LD_PRELOAD with the hook library added as the first one.
func preloadValue(hook, before string) string {
	if before == "" {
		return hook
	}
	return hook + ":" + before
}

// mergeEnviron returns the environment with the given variables replaced or added.
func mergeEnviron(environment, changes []string) []string {
	changed := map[string]bool{}
	for _, c := range changes {
		key, _, _ := strings.Cut(c, "=")
		changed[key] = true
	}
	kept := slices.DeleteFunc(slices.Clone(environment), func(e string) bool {
		key, _, _ := strings.Cut(e, "=")
		return changed[key]
	})
	return append(kept, changes...)
}

// connectTokenServer connects to the token server of this run and returns the socket without its close-on-exec flag, so that the program
// inherits it. Call it last: any process started afterwards would inherit the socket, too.
func connectTokenServer(dir string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("connect to the token server: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, "token.sock")}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to the token server: %w", err)
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	return fd, err
}
