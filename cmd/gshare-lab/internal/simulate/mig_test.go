package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

func runMIG(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := simulateMIG().command()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSimulateMIG(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "mig.svg")
	args := []string{"--requests", "2000", "--gpus", "20", "--policy", "gradient,static", "--runs", "2", "-o", "json", "--plot", picture}
	text, err := runMIG(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Policy string
		Mean   struct {
			Accepted float64 `json:"accepted_percent"`
			Busy     float64 `json:"mean_busy_percent"`
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Mean.Accepted <= got[1].Mean.Accepted || got[1].Mean.Accepted <= 0 || got[0].Mean.Busy > 100 {
		t.Errorf("%+v, want the gradient ahead of static partitions", got)
	}
	if again, err := runMIG(t, args...); err != nil || again != text {
		t.Errorf("the same seeds gave another result (%v)", err)
	}
	svg, err := os.ReadFile(picture)
	for _, policy := range []string{"gradient", "static"} {
		if err != nil || !bytes.Contains(svg, []byte(policy)) {
			t.Errorf("the picture does not name %s (%v)", policy, err)
		}
	}
}

func TestSimulateMIGUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"--model", "T4"}, {"--mix", "huge"}, {"--gpus", "0"}, {"--load", "NaN"}, {"--requests", "1"}, {"--policy", "best"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if _, err := runMIG(t, args...); err == nil || cli.ExitCode(err) != 2 {
				t.Errorf("%v: %v", args, err)
			}
		})
	}
}
