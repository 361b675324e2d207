package simulate

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
)

// TestHelp: where the help of a simulation says what its policies are, it leaves none out.
func TestHelp(t *testing.T) {
	for _, s := range []*simulation{simulateDelivery(), simulateElastic(), simulateServing()} {
		t.Run(s.name, func(t *testing.T) {
			for _, policy := range s.policies {
				if !regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(policy) + `($|[^\w-])`).MatchString(s.long) {
					t.Errorf("no word of the policy %s", policy)
				}
			}
		})
	}
}

// TestTableComesFirst: a picture that cannot be written in the end does not take the table with it.
func TestTableComesFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pictures")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := simulation{
		policies: []string{"only"}, flags: func(*pflag.FlagSet) {}, prepare: func() error { return nil },
		run: func(context.Context, string, uint64) ([]report.Figure, error) {
			return []report.Figure{{Name: "gpus", Value: 12345}}, os.Remove(dir)
		},
		chart: func([]report.Summary) *chart.Chart { return &chart.Chart{Bars: []chart.Bar{{Name: "only", Value: 1}}} },
	}
	cmd := s.command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--plot", filepath.Join(dir, "a.svg")})
	err := cmd.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--plot") || !strings.Contains(out.String(), "12345") {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}
