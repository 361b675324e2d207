// Package deviceid names the devices that the kubelet counts as gshare/vgpu: one for each share that a slice can take. The slice in a
// device ID's name only guides the kubelet's choice; the placement decides which slice the container gets.
package deviceid

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Prefer returns n of the available device IDs: those in must, then one of each wanted slice, by its index, then any others. It
// returns fewer if there are not n.
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

// All returns the device IDs of all slices; shares is the number of device IDs of each slice.
func All(shares []int) []string {
	var ids []string
	for slice, n := range shares {
		for slot := range n {
			ids = append(ids, fmt.Sprintf("g%d-%d", slice, slot))
		}
	}
	return ids
}

// Parse splits a device ID such as g0-3 into the slice's index and the device ID's number on the slice.
func Parse(id string) (slice, slot int, err error) {
	left, right, _ := strings.Cut(strings.TrimPrefix(id, "g"), "-")
	slice, err = strconv.Atoi(left)
	if err == nil {
		slot, err = strconv.Atoi(right)
	}
	if err != nil || slice < 0 || slot < 0 || id != fmt.Sprintf("g%d-%d", slice, slot) {
		return 0, 0, fmt.Errorf("%.64q is not a device ID such as g0-3", id)
	}
	return slice, slot, nil
}

// Key returns a hash of a set of device IDs that does not depend on their order: 32 hexadecimal digits, for use in a CDI device
// name.
func Key(ids []string) string {
	sorted := slices.Sorted(slices.Values(ids))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return hex.EncodeToString(sum[:16])
}
