package skew

import (
	"testing"

	"k8s.io/apimachinery/pkg/version"
)

func TestFlag(t *testing.T) {
	for _, c := range []struct{ major, minor, want string }{
		{"1", "37", ""},
		{"1", "36", "--emulated-version=1.36"},
		{"1", "36+", "--emulated-version=1.36"},
		{"1", "38", ""},
		{"2", "0", ""},
		{"", "", ""},
		{"1", "x", ""},
	} {
		if got := Flag(version.Info{Major: c.major, Minor: c.minor}); got != c.want {
			t.Errorf("%s.%s: %q, want %q", c.major, c.minor, got, c.want)
		}
	}
}
