package nvml

import (
	"regexp"
	"strings"
)

var (
	brandPattern  = regexp.MustCompile(`^(?:(?:NVIDIA|Tesla|GeForce|Quadro) )+`)
	detailPattern = regexp.MustCompile(`(?:-.*| (?:\d+GB|PCIe|SXM\d?|NVL|HBM\w+)\b.*)$`) // form factor and memory
)

// modelOf returns the GPU model in a product name, such as A100 for "NVIDIA A100-SXM4-80GB".
func modelOf(name string) string {
	return detailPattern.ReplaceAllString(brandPattern.ReplaceAllString(strings.TrimSpace(name), ""), "")
}

// coresPerSM returns the number of CUDA cores in one SM, by compute capability (CUDA C++ Programming Guide, compute
// capabilities): 64 on Volta, Turing and the A100, 128 from the other Amperes on.
func coresPerSM(major, minor int) int {
	if major == 7 || major == 8 && minor == 0 {
		return 64
	}
	return 128
}
