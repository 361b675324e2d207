package cdi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const minors = `config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi11/access 102
gpu0/gi11/ci0/access 103
gpu1/gi1/access 147
gpu1/gi1/ci0/access 148
`

// TestInstance: the nodes of one instance, and of no other.
func TestInstance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mig-minors")
	if err := os.WriteFile(file, []byte(minors), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		instance Instance
		want     []string
	}{
		"first":         {Instance{0, 1, 0}, []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"}},
		"other GPU":     {Instance{1, 1, 0}, []string{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap147", "/dev/nvidia-caps/nvidia-cap148"}},
		"longer number": {Instance{0, 11, 0}, []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap102", "/dev/nvidia-caps/nvidia-cap103"}},
		"not there":     {Instance{0, 2, 0}, nil},
		"other part":    {Instance{0, 1, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			edits, err := Capabilities(file).Edits(test.instance)
			var got []string
			for _, n := range edits.DeviceNodes {
				got = append(got, n.Path)
			}
			if (err != nil) != (test.want == nil) || err == nil && !cmp.Equal(got, test.want) {
				t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
			}
		})
	}
	if _, err := Capabilities(file + "x").Edits(Instance{}); err == nil {
		t.Error("a driver without capabilities is no error")
	}
}
