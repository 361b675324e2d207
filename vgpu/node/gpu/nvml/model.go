package nvml

import (
	"regexp"
	"strings"
)

var (
	brand  = regexp.MustCompile(`^(?:(?:NVIDIA|Tesla|GeForce|Quadro) )+`)
	detail = regexp.MustCompile(`(?:-.*| (?:\d+GB|PCIe|SXM\d?|NVL|HBM\w+)\b.*)$`) // form factor and memory
)

// modelOf takes the model out of a product name: "NVIDIA A100-SXM4-80GB" is an A100.
func modelOf(name string) string {
	return detail.ReplaceAllString(brand.ReplaceAllString(strings.TrimSpace(name), ""), "")
}

// coresOfSM is the number of CUDA cores in one SM, by compute capability (CUDA C++ Programming Guide, compute
// capabilities): 64 on Volta, Turing and the A100, 128 from the other Amperes on.
func coresOfSM(major, minor int) int {
	if major == 7 || major == 8 && minor == 0 {
		return 64
	}
	return 128
}
