package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// waitVariable makes the test binary a program that waits for a signal: see TestMain.
const waitVariable = "GSHARE_TEST_WAIT"

func TestMain(m *testing.M) {
	switch os.Getenv(waitVariable) {
	case "":
		os.Exit(m.Run())
	case "ignore": // as nohup
		signal.Ignore(syscall.SIGHUP)
	default: // the tests may run where it is ignored
		unused := make(chan os.Signal, 1)
		signal.Notify(unused, syscall.SIGHUP)
	}
	Main(Root(&cobra.Command{Use: "prog", RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Println("waits")
		<-cmd.Context().Done()
		return nil
	}}))
}

// TestSignals sends each signal that asks a program to end to one that ends in order, for which its exit code is 0.
func TestSignals(t *testing.T) {
	for name, c := range map[string]struct {
		mode    string
		signals []syscall.Signal
		killed  bool
	}{
		"SIGINT":             {"wait", []syscall.Signal{syscall.SIGINT}, false},
		"SIGTERM":            {"wait", []syscall.Signal{syscall.SIGTERM}, false},
		"SIGHUP":             {"wait", []syscall.Signal{syscall.SIGHUP}, false},
		"SIGHUP under nohup": {"ignore", []syscall.Signal{syscall.SIGHUP, syscall.SIGKILL}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), waitVariable+"="+c.mode)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
			if _, err := out.Read(make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			for i, s := range c.signals {
				if i > 0 {
					time.Sleep(50 * time.Millisecond) // for the signal before, which must have no effect
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			err = cmd.Wait()
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() != c.killed || !c.killed && err != nil {
				t.Errorf("%v", err)
			} else if c.killed && status.Signal() != c.signals[len(c.signals)-1] {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOnePlaceHandlesSignals: each program ends by the signals of Main, or by those of Kubernetes' own programs (cli.Run of component-base), and no
// other code chooses signals, which could leave one out.
func TestOnePlaceHandlesSignals(t *testing.T) {
	runs := map[string]bool{} // by the program's folder
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2 || slices.Contains([]string{"bin", "testdata", "test", "hack"}, entry.Name()) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := s.X.(*ast.Ident)
			switch {
			case x == nil:
			case x.Name == "signal" && strings.HasPrefix(s.Sel.Name, "Notify") && !strings.HasSuffix(path, "cmd/internal/cli/cli.go"):
				t.Errorf("%s chooses signals itself; cli.UntilSignal does", path)
			case x.Name == "cli" && (s.Sel.Name == "Main" || s.Sel.Name == "Run"):
				runs[filepath.Dir(path)] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob("../../*/main.go")
	if err != nil || len(programs) < 8 {
		t.Fatalf("programs: %v, %v", programs, err)
	}
	for _, main := range programs {
		if dir := filepath.Join("../../../cmd", filepath.Base(filepath.Dir(main))); !runs[dir] {
			t.Errorf("%s does not run its command by cli.Main", main)
		}
	}
}
