package gpumap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Interesting returns the n GPUs that are most worth drawing: first those whose shares have different quotas, then those with the most shares.
// GPUs that would look like one already chosen come last, and empty GPUs are omitted.
func Interesting(gpus []Slice, n int) []Slice {
	seen := map[string]bool{}
	var fresh, again []candidate
	for _, c := range candidates(gpus) {
		if seen[c.looks] {
			again = append(again, c)
			continue
		}
		seen[c.looks] = true
		fresh = append(fresh, c)
	}
	var list []Slice
	for _, c := range append(fresh, again...) {
		if len(list) < n {
			list = append(list, c.Slice)
		}
	}
	return list
}

// candidate is a GPU with the properties by which Interesting ranks it.
type candidate struct {
	Slice
	quotas int    // number of different quotas
	looks  string // equal for GPUs with equal pictures
}

// candidates returns the GPUs that have shares, ranked with the most interesting first.
func candidates(gpus []Slice) []candidate {
	var list []candidate
	for _, s := range gpus {
		if len(s.Shares) > 0 {
			list = append(list, candidateOf(s))
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(
			-cmp.Compare(min(a.quotas, 2), min(b.quotas, 2)),
			-cmp.Compare(len(a.Shares), len(b.Shares)),
			-cmp.Compare(a.quotas, b.quotas),
			-cmp.Compare(a.allocated(), b.allocated()),
			cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.Index, b.Index))
	})
	return list
}

func candidateOf(s Slice) candidate {
	c := candidate{Slice: s}
	var b strings.Builder
	fmt.Fprint(&b, s.Rectangles)
	last := 0
	for _, x := range sortedShares(s.Shares) { // in descending order of quota
		quota := int(x.Share.QuotaRequest)
		if c.quotas == 0 || quota != last {
			c.quotas++
		}
		last = quota
		fmt.Fprint(&b, " ", quota, "x", x.Share.SMRequest)
	}
	c.looks = b.String()
	return c
}
