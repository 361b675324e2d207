package nvml

import (
	"testing"
	"testing/fstest"
)

func TestNUMANode(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"proc/driver/nvidia/gpus/0000:17:00.0/information": file("Model: \t NVIDIA H200\nDevice Minor: \t 1\n"),
		"proc/driver/nvidia/gpus/0000:ca:00.0/information": file("Model: \t NVIDIA H200\nDevice Minor: \t 11\n"),
		"proc/driver/nvidia/gpus/0000:cb:00.0/information": file("Device Minor: \t 2\n"),
		"proc/driver/nvidia/gpus/0000:cc:00.0/information": file("Device Minor: \t 3\n"),
		"sys/bus/pci/devices/0000:17:00.0/numa_node":       file("0\n"),
		"sys/bus/pci/devices/0000:ca:00.0/numa_node":       file("1\n"),
		"sys/bus/pci/devices/0000:cb:00.0/numa_node":       file("-1\n"),
	}
	for name, test := range map[string]struct{ minor, want int }{
		"first": {1, 0}, "longer number": {11, 1}, "one node": {2, -1}, "kernel does not tell": {3, -1}, "no such GPU": {7, -1},
	} {
		t.Run(name, func(t *testing.T) {
			got := -1
			if node := numaNodeOf(root, test.minor); node != nil {
				got = *node
			}
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	if node := numaNodeOf(fstest.MapFS{}, 0); node != nil {
		t.Errorf("without a driver: got %d", *node)
	}
}
