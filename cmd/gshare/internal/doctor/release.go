package doctor

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// release is the major and minor number of a version, without its patch level.
type release struct{ major, minor uint }

func parseRelease(text string) (*release, error) {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return nil, err
	}
	return &release{v.Major(), v.Minor()}, nil
}

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) atLeast(o release) bool {
	return r.major > o.major || r.major == o.major && r.minor >= o.minor
}

// The oldest supported versions of Kubernetes: mutating admission policies are GA in 1.36; the kubelet's PodsAPI, from which the node
// agent reads pods, is enabled by default from 1.37.
var (
	minServer  = release{1, 36}
	minKubelet = release{1, 37}
)

// SkewPolicy is a sentence that names the supported combinations of component versions.
const SkewPolicy = "scheduler and agents within one minor version of each other, gshare within one minor version of both, " +
	"Kubernetes API server 1.36 or later, kubelets 1.37 or later"

// Skewed reports whether two versions of gshare are more than one minor version apart. It returns false for a text that is not a version,
// such as dev, and for the v0.0.0 of an untagged commit.
func Skewed(a, b string) bool {
	x, errX := parseRelease(a)
	y, errY := parseRelease(b)
	return errX == nil && errY == nil && *x != release{} && *y != release{} && (x.major != y.major || max(x.minor, y.minor)-min(x.minor, y.minor) > 1)
}

// Tag returns the tag of an image reference, or latest without one.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}
	return "latest"
}
