//go:build killpoints

package killpoint

import (
	"fmt"
	"testing"
)

// TestKills is started by TestTag with GSHARE_TEST_KILL_AT=recorded:3: it passes that point twice, and dies at the third time.
func TestKills(t *testing.T) {
	parse("")("recorded")
	for range 10 {
		At("served")
	}
	At("recorded")
	At("recorded")
	fmt.Println("alive")
	At("recorded")
	fmt.Println("not killed")
}
