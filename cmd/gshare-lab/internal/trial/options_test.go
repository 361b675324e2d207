package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

// TestBadUse: usage errors are reported before anything is started, with exit code 2.
func TestBadUse(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1,None\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ args, want string }{
		"profile":       {"demo --profile stock", `--profile: unknown profile "stock": must be one of gshare, `},
		"pods":          {"demo --pods 0", "--pods: must be from 1"},
		"output":        {"replay --nodes a --pods b -o xml", `unknown format "xml"`},
		"limit":         {"replay --nodes a --pods b --limit -1", "--limit: must not be negative, got -1"},
		"replicate":     {"replay --nodes a --pods b --replicate 0", "--replicate: must be from 1"},
		"no file":       {"replay --nodes /nonexistent --pods b", "/nonexistent"},
		"bad row":       {"replay --nodes " + bad + " --pods b", bad + ": line 2, column model"},
		"bench folder":  {"bench --profiles /nonexistent", "--profiles: stat /nonexistent"},
		"bench rounds":  {"bench --rounds 0", "--pods and --rounds must be at least 1"},
		"bench no room": {"bench --nodes 10 --pods 100", "cannot hold 100"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := execute(t.Context(), strings.Fields(tt.args), &bytes.Buffer{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || cli.ExitCode(err) != 2 {
				t.Errorf("got %v with exit code %d, want %q and 2", err, cli.ExitCode(err), tt.want)
			}
		})
	}
}

func execute(ctx context.Context, args []string, out *bytes.Buffer) error {
	cmd := cli.Root(&cobra.Command{Use: "gshare-lab"})
	cmd.AddCommand(Commands()...)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	return cmd.ExecuteContext(ctx)
}

func TestExitCodes(t *testing.T) {
	tests := map[int]error{1: errors.New("x"), 2: fmt.Errorf("y: %w", cli.Usage(errors.New("x"))), 130: context.Canceled}
	for want, err := range tests {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			if got := cli.ExitCode(err); got != want {
				t.Errorf("%v exits with %d, want %d", err, got, want)
			}
		})
	}
}

// The narrowing switch is part of the embedded configuration's text: it must really be there.
func TestWideConfigDiffers(t *testing.T) {
	if !bytes.Contains(withoutCandidates(), []byte("candidateNodes: 0")) {
		t.Error("the configuration without narrowing narrows")
	}
}

func TestMedianRatio(t *testing.T) {
	if got := medianRatio([]float64{1, 9, 4}, []float64{2, 3, 4}); got != 1 {
		t.Errorf("got %v", got)
	}
}
