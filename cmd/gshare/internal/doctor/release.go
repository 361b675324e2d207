package doctor

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// release is a version as skew is reckoned: major and minor.
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

// What gshare needs of Kubernetes: mutating admission policies are GA in 1.36; the kubelet's PodsAPI, from which the node
// agent learns of pods, is on from 1.37.
var (
	leastServer  = release{1, 36}
	leastKubelet = release{1, 37}
)

// SkewPolicy is which versions go together.
const SkewPolicy = "scheduler and agents: the same minor version, or one apart while they are upgraded; gshare: at most one minor version " +
	"from them; Kubernetes: API server 1.36 or later, kubelets 1.37 or later"

// Skewed says that two versions of gshare are further apart than the policy allows; versions that are none, such as dev or the
// v0.0.0 of a commit without a tag, say nothing.
func Skewed(a, b string) bool {
	x, errX := parseRelease(a)
	y, errY := parseRelease(b)
	return errX == nil && errY == nil && *x != release{} && *y != release{} && (x.major != y.major || max(x.minor, y.minor)-min(x.minor, y.minor) > 1)
}

// Tag is the tag of an image, which should be the version of what is in it.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}
	return "latest"
}
