// Package ticket names what the kubelet counts. A ticket stands for one vGPU on some slice: gshare/vgpu has as many as the
// slices take shares. Which slice a ticket is written for steers nobody but the kubelet's choice; the placement decides.
package ticket

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Prefer picks n of the available tickets: those that have to be among them, then those of the given slices, one of each in
// their order, then any. It gives fewer where there are not so many.
func Prefer(available, must []string, wanted []int, n int) []string {
	chosen := slices.Clone(must)
	for _, slice := range wanted {
		if i := slices.IndexFunc(available, func(id string) bool { return of(id, slice) && !slices.Contains(chosen, id) }); i >= 0 {
			chosen = append(chosen, available[i])
		}
	}
	for _, id := range available {
		if !slices.Contains(chosen, id) {
			chosen = append(chosen, id)
		}
	}
	return chosen[:min(n, len(chosen))]
}

func of(id string, slice int) bool {
	s, _, err := Parse(id)
	return err == nil && s == slice
}

// All lists the tickets of slices that take so many shares each.
func All(shares []int) []string {
	var ids []string
	for slice, n := range shares {
		for slot := range n {
			ids = append(ids, fmt.Sprintf("g%d-%d", slice, slot))
		}
	}
	return ids
}

// Parse reads the slice and the slot of a ticket, both by their numbers.
func Parse(id string) (slice, slot int, err error) {
	left, right, _ := strings.Cut(strings.TrimPrefix(id, "g"), "-")
	slice, err = strconv.Atoi(left)
	if err == nil {
		slot, err = strconv.Atoi(right)
	}
	if err != nil || id != fmt.Sprintf("g%d-%d", slice, slot) {
		return 0, 0, fmt.Errorf("%.64q is not a ticket such as g0-3", id)
	}
	return slice, slot, nil
}

// Key names a set of tickets, whatever their order: 32 hexadecimal digits, which fit a CDI device name.
func Key(ids []string) string {
	sorted := slices.Sorted(slices.Values(ids))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return hex.EncodeToString(sum[:16])
}
