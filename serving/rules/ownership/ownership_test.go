package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}

// TestBalance checks that gateways own about as many functions as others.
func TestBalance(t *testing.T) {
	for gateways := 2; gateways <= 16; gateways *= 2 {
		t.Run(fmt.Sprint(gateways), func(t *testing.T) {
			const functions = 10_000
			owned := map[string]int{}
			for _, f := range names("default/function", functions) {
				owned[Rank(f, names("gshare-gateway-7c9f8d-abcd", gateways))[0]]++
			}
			for _, name := range names("gshare-gateway-7c9f8d-abcd", gateways) {
				if fair := functions / gateways; owned[name] < fair*85/100 || owned[name] > fair*115/100 {
					t.Errorf("%s owns %d functions, want about %d", name, owned[name], fair)
				}
			}
		})
	}
}

// TestMovement checks that a gateway that goes changes only where it was, and that the order of names does not matter.
func TestMovement(t *testing.T) {
	gateways := names("gateway", 7)
	for _, f := range names("default/function", 500) {
		before := Rank(f, gateways)
		for gone := range gateways {
			rest := slices.Delete(slices.Clone(gateways), gone, gone+1)
			rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
			want := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return name == gateways[gone] })
			if after := Rank(f, rest); !slices.Equal(after, want) {
				t.Fatalf("%s: without %s %v, want %v", f, gateways[gone], after, want)
			}
		}
	}
}

// TestDivide checks that each replica has one owner, that the owners have equally many, and that few replicas change theirs when one comes.
func TestDivide(t *testing.T) {
	for owners := 1; owners <= 5; owners++ {
		for n := range 40 {
			t.Run(fmt.Sprintf("%d owners, %d replicas", owners, n), func(t *testing.T) {
				ranked, replicas := Rank("f", names("gateway", owners)), names("pod", n)
				of, has := Divide(ranked, replicas), map[string]int{}
				for _, r := range replicas {
					has[of[r]]++
				}
				if len(of) != n || has[""] > 0 {
					t.Fatalf("owners %v of %d replicas", of, n)
				}
				for i, owner := range ranked {
					if fewest := n / owners; has[owner] < fewest || has[owner] > fewest+1 || n < owners && has[owner] != min(1, max(0, n-i)) {
						t.Errorf("%s has %d of %d replicas among %d owners", owner, has[owner], n, owners)
					}
				}
				shuffled := slices.Clone(replicas)
				rand.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				for r, owner := range Divide(ranked, shuffled) {
					if of[r] != owner {
						t.Errorf("%s is of %s or %s, by the order", r, of[r], owner)
					}
				}
				if n < owners {
					return
				}
				moved := 0
				for r, owner := range Divide(ranked, append(replicas, "pod-new")) {
					if r != "pod-new" && of[r] != owner {
						moved++
					}
				}
				if moved > max(owners, n/4) {
					t.Errorf("%d of %d replicas changed their owner as one came", moved, n)
				}
			})
		}
	}
}

func TestCount(t *testing.T) {
	for name, test := range map[string]struct {
		owners int
		rate   float64
		want   int
	}{
		"none yet":             {0, 0, 1},
		"little":               {1, 100, 1},
		"as much as one can":   {1, 15_000, 1},
		"more":                 {1, 15_001, 2},
		"much more":            {1, 60_000, 4},
		"a little less":        {2, 14_000, 2},
		"less":                 {2, 11_000, 1},
		"nothing any more":     {5, 0, 1},
		"between":              {3, 29_000, 3},
		"two are enough again": {3, 23_000, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Count(test.owners, test.rate, 15_000); got != test.want {
				t.Errorf("%d owners, want %d", got, test.want)
			}
		})
	}
}

func BenchmarkRank(b *testing.B) {
	gateways := names("gshare-gateway-7c9f8d-abcd", 5)
	b.ReportAllocs()
	for b.Loop() {
		Rank("default/resnet50", gateways)
	}
}
