package share

import (
	"regexp"
	"slices"
	"strings"
)

// MaxWeights is the maximum number of weights that a pod may declare.
const MaxWeights = 8

// Digest names the weights of a model by their content: "sha256:" and 64 lower-case hexadecimal digits.
type Digest string

// Weights are the weights of one model that a pod uses from the model store of its node. All pods of a namespace that declare the same
// digest share one copy on each slice.
type Weights struct {
	Digest Digest
	Memory Bytes // on the device, as the pod declares it
}

// ParseWeights parses the annotation gshare.dev/weights: a comma-separated list of a digest, "=" and the size on the device, such as
// "sha256:9f86…0a08=2634Mi", in any order. The result is sorted by digest, and nil for an empty text. Errors are *FieldError.
func ParseWeights(text string) ([]Weights, error) {
	if text == "" {
		return nil, nil
	}
	entries := strings.SplitN(text, ",", MaxWeights+1) // bounded; whatever is left of a longer list is refused
	if len(entries) > MaxWeights {
		return nil, Invalid(FieldWeights, "more than %d entries", MaxWeights)
	}
	list := make([]Weights, len(entries))
	for i, entry := range entries {
		digest, size, _ := strings.Cut(strings.TrimSpace(entry), "=")
		mib, err := parseSize(FieldWeights, size)
		if err != nil {
			return nil, err
		}
		list[i] = Weights{Digest: Digest(digest), Memory: Bytes(mib) * MiB}
	}
	slices.SortFunc(list, func(a, b Weights) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	if err := ValidateWeights(list); err != nil {
		return nil, err
	}
	return list, nil
}

// ValidateWeights returns an error for a list that ParseWeights cannot return: one that is too long, not sorted by digest, or has an
// invalid digest or size. Errors are *FieldError.
func ValidateWeights(list []Weights) error {
	if len(list) > MaxWeights {
		return Invalid(FieldWeights, "more than %d entries", MaxWeights)
	}
	for i, w := range list {
		if !digestPattern.MatchString(string(w.Digest)) {
			return Invalid(FieldWeights, "%.80q is not sha256: and 64 lower-case hexadecimal digits", string(w.Digest))
		}
		if i > 0 && list[i-1].Digest >= w.Digest {
			return Invalid(FieldWeights, "%.80q is out of order or named twice", string(w.Digest))
		}
		if err := inRange(FieldWeights, int64(w.Memory), 1, int64(MaxMemory), "bytes"); err != nil {
			return err
		}
	}
	return nil
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// MemoryOf returns the sum of the sizes of weights.
func MemoryOf(list []Weights) Bytes {
	var sum Bytes
	for _, w := range list {
		sum += w.Memory
	}
	return sum
}
