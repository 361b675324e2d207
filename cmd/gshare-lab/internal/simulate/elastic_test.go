package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

func runElastic(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := simulateElastic().command()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSimulateElastic(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "p95.svg")
	args := []string{"--pair", "gpt2-large+roberta-large", "--seconds", "5", "--policy", "rckm,mps-r", "-o", "json", "--plot", picture}
	text, err := runElastic(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Policy   string
		P95      float64 `json:"p95_ratio"`
		Training float64 `json:"training_percent"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if drawn, err := os.ReadFile(picture); err != nil || !bytes.Contains(drawn, []byte("mps-r")) {
		t.Errorf("the picture: %v, %d bytes", err, len(drawn))
	}
	if len(got) != 2 || got[0].P95 < 0.99 || got[0].P95 >= got[1].P95 || got[0].Training <= got[1].Training {
		t.Errorf("%+v, want rckm ahead of caps at the requests", got)
	}
	if again, err := runElastic(t, args...); err != nil || again != text {
		t.Errorf("the same seed gave another result (%v)", err)
	}
	more, err := runElastic(t, append(args, "--load", "3")...)
	var loaded []struct {
		Training float64 `json:"training_percent"`
	}
	if err = errors.Join(err, json.Unmarshal([]byte(more), &loaded)); err != nil || loaded[0].Training >= got[0].Training {
		t.Errorf("three times the requests leave training %+v, before %+v (%v)", loaded, got, err)
	}
	text, err = runElastic(t, "--kind", "training-training", "--seconds", "1", "-o", "json")
	if err != nil || bytes.Contains([]byte(text), []byte("p95_ratio")) || !bytes.Contains([]byte(text), []byte("training_percent")) {
		t.Errorf("two trainings: %v, %s", err, text)
	}
}

func TestSimulateElasticUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"--kind", "none"}, {"--pair", "none"}, {"--cv", "0"}, {"--cv", "NaN"}, {"--seconds", "0"}, {"--max-tokens", "-1"},
		{"--interference", "-1"}, {"--spread", "-0.1"}, {"--spread", "NaN"}, {"--speed", "0"}, {"--speed", "21"}, {"--load", "0"}, {"--load", "NaN"}, {"--kind", "training-training", "--plot", "a.svg"}, {"--policy", "best"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if _, err := runElastic(t, args...); err == nil || cli.ExitCode(err) != 2 {
				t.Errorf("%v: %v", args, err)
			}
		})
	}
}
