package simulate

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

func TestSimulateUnseen(t *testing.T) {
	run := func(arguments ...string) (string, error) {
		cmd := simulateUnseen().command()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(arguments)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	text, err := run("--policy", "all", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Policy string
		Error  float64 `json:"error_percent"`
		Worst  float64 `json:"worst_percent"`
		Groups float64
		Saving float64 `json:"saving_percent"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != 6 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, m := range got {
		if m.Error <= 0 || m.Worst < m.Error || m.Groups < 1 || m.Saving < 0 {
			t.Errorf("%+v", m)
		}
	}
	for _, arguments := range [][]string{{"--data", "dilu"}, {"--policy", "gpt"}} {
		if _, err := run(arguments...); err == nil || cli.ExitCode(err) != 2 {
			t.Errorf("%v: %v", arguments, err)
		}
	}
	if _, err := run("--data", "harmonybatch", "--policy", "mobilenetv2"); err == nil {
		t.Error("no error for a model that was not measured")
	}
}
