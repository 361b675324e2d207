package simulate

import (
	"regexp"
	"testing"
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
