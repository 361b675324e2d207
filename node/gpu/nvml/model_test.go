package nvml

import "testing"

func TestModelOf(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA A100-SXM4-80GB":   "A100",
		"NVIDIA H100 80GB HBM3":   "H100",
		"NVIDIA H100 PCIe":        "H100",
		"NVIDIA H200":             "H200",
		"Tesla V100-SXM2-32GB":    "V100",
		"NVIDIA GeForce RTX 4090": "RTX 4090",
		"NVIDIA L4":               "L4",
		"NVIDIA RTX A6000":        "RTX A6000",
	} {
		t.Run(name, func(t *testing.T) {
			if got := modelOf(name); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
