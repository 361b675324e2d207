package mps

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// exchange is a command and the answer of each branch: one for all, or one each for 535 and for later ones.
type exchange struct {
	command string
	want    []string
}

func (e exchange) answer(branch string) string {
	if branch > "535" {
		return e.want[len(e.want)-1]
	}
	return e.want[0]
}

const denied = "Insufficient privileges for UID 4711. Control deamon settings can only be modified by the user started it or by the root user."

// exchanges are commands while there is no server.
var exchanges = []exchange{
	{"get_server_list", []string{""}},
	{"get_server_status 99", []string{`Unknown command "get_server_status"`, "Server 99 not found"}},
	{"get_server_status", []string{`Unknown command "get_server_status"`, "A server PID is required"}},
	{"get_client_list 99", []string{"Server 99 not found"}},
	{"get_client_list", []string{"Server 0 not found"}},
	{"terminate_client 99 98", []string{"Server 99 not found\nServer 99 not found!\n1"}},
	{"ps", []string{"Server not found"}},
	{"get_default_active_thread_percentage", []string{"100.0"}},
	{"set_default_active_thread_percentage 30", []string{"30.0"}},
	{"set_default_active_thread_percentage 0", []string{"30.0"}},
	{"set_default_active_thread_percentage 101", []string{"30.0"}},
	{"set_default_active_thread_percentage x", []string{"30.0"}},
	{"set_default_active_thread_percentage", []string{"30.0"}},
	{"get_active_thread_percentage 99", []string{"Server 99 not found"}},
	{"set_active_thread_percentage 99 20", []string{"Server 99 not found"}},
	{"get_default_device_pinned_mem_limit 0", []string{""}},
	{"set_default_device_pinned_mem_limit 0 2G", []string{""}},
	{"get_default_device_pinned_mem_limit 0", []string{"2G"}},
	{"set_default_device_pinned_mem_limit GPU-0 3G", []string{""}},
	{"set_default_device_pinned_mem_limit 0 2", []string{""}},
	{"get_default_device_pinned_mem_limit 0", []string{"2M"}},
	{"get_default_client_priority", []string{"0"}},
	{"set_default_client_priority 1", []string{""}},
	{"get_default_client_priority", []string{"1"}},
	{"set_default_client_priority 7", []string{"Invalid priority value - must be 0 or 1!"}},
	{"start_server", []string{"A user id (UID) is required to start a new server"}},
	{"shutdown_server 99", []string{"Server 99 not found"}},
	{"get_device_client_list", []string{""}},
	{"nonsense of a client", []string{`Unknown command "nonsense"`}},
	{"nonsense\nget_default_client_priority", []string{"Unknown command \"nonsense\"\n1"}},
	{"", []string{`Unknown command ""`}},
}

// strangerExchanges are commands of another user than the daemon's.
var strangerExchanges = []exchange{
	{"set_default_active_thread_percentage 77", []string{"77.0", denied}},
	{"set_default_device_pinned_mem_limit 0 1G", []string{"", denied}},
	{"set_default_client_priority 0", []string{"", denied}},
	{"get_default_client_priority", []string{"0", "1"}},
	{"start_server -uid 0", []string{"Insufficient privileges for UID 4711", "Insufficient privileges for UID 4711. Only the root user may start server for another user."}},
	{"terminate_client 99 98", []string{"Server 99 not found\nServer 99 not found!\n1"}},
	{"quit -t 0", []string{"Not enough privilege to execute quit command"}},
}

// startingExchanges are commands while server SERVER is starting.
var startingExchanges = []exchange{
	{"get_server_list", []string{"SERVER"}},
	{"get_server_status SERVER", []string{`Unknown command "get_server_status"`, "INITIALIZING"}},
	{"get_client_list SERVER", []string{""}},
	{"terminate_client SERVER 98", []string{"Server SERVER not found!\n1"}},
	{"ps", []string{"Server not found"}},
	{"get_active_thread_percentage SERVER", []string{""}},
	{"set_active_thread_percentage SERVER 20", []string{""}},
	{"shutdown_server SERVER", []string{""}},
}

// startServer returns the command that starts a server for this user.
func startServer() string { return fmt.Sprintf("start_server -uid %d", os.Getuid()) }

// listServerPIDs returns the answer to get_server_list.
func (r *rig) listServerPIDs() string {
	answer, err := r.control(slice).commandV2(r.t.Context(), "get_server_list")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(answer)
}

// TestCommands: the fake daemons answer as NVIDIA's do: each command has the answer of the same table.
func TestCommands(t *testing.T) {
	forDrivers(t, func(t *testing.T, branch, programs string) {
		r := driverRig(t, programs)
		r.restart(Daemons{}) // without the guard, which refuses another user's commands
		r.Close()
		c := r.control(slice)
		if err := c.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		check := func(what, command, want string, send func(command string) string) {
			t.Helper()
			if got := send(command); got != want {
				t.Errorf("%s: %q is answered by %q, want %q", what, command, got, want)
			}
		}
		own := func(command string) string {
			answer, err := c.commandV2(t.Context(), command)
			return strings.TrimSuffix(answer, "\n") + errorText(err)
		}
		for _, e := range exchanges {
			check("without a server", e.command, e.answer(branch), own)
		}
		if os.Geteuid() == 0 {
			for _, e := range strangerExchanges {
				check("from another user", e.command, e.answer(branch), func(command string) string { return r.commandAs(4711, command) })
			}
		}
		if answer := own(startServer()); answer != "" {
			t.Errorf("start_server is answered by %q", answer)
		}
		var pid string
		r.waitFor("a server", func() bool { pid = r.listServerPIDs(); return pid != "" })
		for _, e := range startingExchanges {
			check("while a server starts", strings.ReplaceAll(e.command, "SERVER", pid), strings.ReplaceAll(e.answer(branch), "SERVER", pid), own)
		}
		r.checkFiles(branch, true)
		if _, err := c.run(t.Context(), "", "-d"); err == nil || !strings.Contains(err.Error(), "exit status 1: An instance of this daemon is already running") {
			t.Errorf("a second daemon: %v", err)
		}
		if out, err := c.run(t.Context(), "quit -t 0\n"); out != "" || errors.Is(err, errTimeout) {
			t.Errorf("quit is answered by %q (%v)", out, err)
		}
		r.waitForNoDaemon()
		r.checkFiles(branch, false)
		r.waitFor("the ended daemon's pipes to close", func() bool { // an ending process has no name before it has no files
			_, err := c.run(t.Context(), "get_server_list\n")
			return err != nil && strings.Contains(err.Error(), noDaemonText)
		})
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// commandAs sends a command to the daemon's own pipe as another user, until the daemon has time for it.
func (r *rig) commandAs(uid uint32, command string) string {
	for {
		out := r.tryCommandAs(uid, command+"\nget_server_list_end")
		if answer, complete := strings.CutSuffix(out, `Unknown command "get_server_list_end"`); complete {
			return strings.TrimSuffix(answer, "\n")
		}
	}
}

func (r *rig) tryCommandAs(uid uint32, command string) string {
	cmd := exec.Command(filepath.Join(r.programs, controlProgram))
	cmd.Env = []string{pipeVariable + r.PipeDir(slice)}
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(out), "\n") + errorText(err)
}

// checkFiles compares the files of the daemon, as it runs or after its end, with those of a branch.
func (r *rig) checkFiles(branch string, running bool) {
	r.t.Helper()
	want := map[string]string{"control": "Srw-rw-rw-", "control_lock": "-rw-rw-rw-", "control_privileged": "Srwxr-xr-x"}
	if running {
		want["log"] = "prwxrwxrwx"
	}
	if running && branch >= "550" {
		want["nvidia-cuda-mps-control.pid"] = "-rw-rw-rw-"
	}
	got := map[string]string{}
	entries, err := os.ReadDir(r.PipeDir(slice))
	if err != nil {
		r.t.Error(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			got[e.Name()] = info.Mode().String()
		}
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("running %v: got files %v, want %v", running, got, want)
	}
}

// TestLongDirectory: a pipe directory whose name is too long for the sockets in it fails the start.
func TestLongDirectory(t *testing.T) {
	forDrivers(t, func(t *testing.T, branch, programs string) {
		r := driverRig(t, programs)
		r.Close()
		c := r.control(slice)
		for length, fails := range map[int]bool{87: false, 88: true} {
			long := filepath.Join(r.Dir, strings.Repeat("x", length-len(r.Dir)-1))
			if err := errors.Join(os.MkdirAll(long, 0o755), os.MkdirAll(c.logDir(slice), 0o755)); err != nil {
				t.Fatal(err)
			}
			_, err := c.runIn(t.Context(), long, "", "-d")
			if (err != nil) != fails {
				t.Errorf("%d characters: %v", length, err)
			}
			if _, err := c.runIn(t.Context(), long, "quit -t 0\n"); (err != nil) != fails {
				t.Errorf("%d characters: quit: %v", length, err)
			}
		}
	})
}

// TestPIDs: numbers in answers that are no lists of PIDs are not taken for PIDs.
func TestPIDs(t *testing.T) {
	for answer, want := range map[string][]int{
		"": nil, "12\n13\n": {12, 13}, "Server 99 not found\nServer 99 not found!\n1\n": nil, "1\nServer 99 not found\n": nil,
		"INITIALIZING\n": nil, strconv.Itoa(1<<31) + "\n": {1 << 31},
	} {
		if got := parsePIDs(answer); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", answer, got, want)
		}
	}
}
