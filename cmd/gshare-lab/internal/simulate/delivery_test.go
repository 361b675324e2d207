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

func runDelivery(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := simulateDelivery().command()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSimulateDelivery(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "worst.svg")
	args := []string{"--family", "uniform", "--gpus", "5", "--seconds", "1", "--tokens", "table,hol", "-o", "json", "--plot", picture}
	text, err := runDelivery(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Policy string
		GPUs   int     `json:"gpus"`
		Served float64 `json:"gpus_all_served_percent"`
		Worst  float64 `json:"worst_share"`
		Gap    float64 `json:"longest_gap_ms"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].GPUs != 5 || got[0].Served != 100 || got[0].Worst < 0.99 || got[1].Served > 50 || got[0].Gap <= 0 {
		t.Errorf("%+v, want tables that serve all and a queue that does not", got)
	}
	if again, err := runDelivery(t, args...); err != nil || again != text {
		t.Errorf("the same seed gave another result (%v)", err)
	}
	svg, err := os.ReadFile(picture)
	for _, policy := range []string{"table", "hol"} {
		if err != nil || !bytes.Contains(svg, []byte(policy)) {
			t.Errorf("the picture does not name %s (%v)", policy, err)
		}
	}
}

func TestSimulateDeliveryUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"--family", "none"}, {"--admission", "fifo"}, {"--tokens", "best"}, {"--gpus", "0"}, {"--seconds", "0"},
		{"--window", "30ms"}, {"--turn", "0s", "--switch-loss", "0s"}, {"--switch-loss", "6ms"}, {"--switch-loss", "-1ms"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if _, err := runDelivery(t, args...); err == nil || cli.ExitCode(err) != 2 {
				t.Errorf("%v: %v", args, err)
			}
		})
	}
}
