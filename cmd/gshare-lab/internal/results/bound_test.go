package results

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// storedCells returns the cells of a table as they are published.
func storedCells(t *testing.T, table string) cells {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "test", "bench", "results", table+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var stored storedTable
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	return stored.Cells
}

// No stored or published figure of a policy is above the stored limit for policies that accept what fits, and that is not above the limit
// for clairvoyant ones. The limits are means over fewer seeds: a tenth of a point is left for that.
func TestNoFigureIsAboveItsLimit(t *testing.T) {
	limits, compared := storedCells(t, "bound"), 0
	below := func(list, load, what string, percent float64) {
		row := limits[list+", "+load+" %"]
		limit, highest := row[accepting+" allocation_percent"].Mean, row[clairvoyant+" allocation_percent"].Mean
		if compared++; percent > limit+0.1 || limit > highest {
			t.Errorf("%s at %s %%: %s has %.2f %%, the limits are %.2f and %.2f %%", list, load, what, percent, limit, highest)
		}
	}
	for list, row := range storedCells(t, "openb") {
		for column, c := range row {
			load := "130"
			if strings.HasSuffix(column, at100) {
				load = "100"
			}
			below(list, load, column, c.Mean)
		}
	}
	for list, percent := range publishedAllocation {
		below(list, "130", "the published run of FGD", percent)
	}
	if want := len(openbLists) * 12; compared != want {
		t.Errorf("%d figures were compared, want %d", compared, want)
	}
}
