package profiles

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// review looks whether a profile is stale.
func (s *state) review(status *api.GPUProfileStatus) decision {
	if status.Completed == nil {
		return decision{}
	}
	if hasNewImage(s, status) {
		again := s.restart(status)
		again.ReplicasImage = bounded(s.served, maxImage) // no replica may be ready when the measurement ends
		return s.write(again)
	}
	c := metav1.Condition{Type: api.ConditionStale, Status: metav1.ConditionFalse, Reason: "UpToDate", ObservedGeneration: s.profile.Generation}
	limit := s.profile.Spec.StaleAfter.Value()
	if why := stale(status.Fingerprint, s.nodes, s.version, s.served); why != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Changed", bounded(why, maxMessage)
	} else if limit > 0 && s.now.Sub(status.Completed.Time) >= limit {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Old", "it was measured more than "+limit.String()+" ago"
	}
	meta.SetStatusCondition(&status.Conditions, c)
	made := s.write(status)
	made.after = stalePause
	return made
}

// stale returns what has changed since a profile was measured, or an empty text. image is that of the function's present replicas; empty if unknown.
func stale(was *api.ProfileFingerprint, nodes []v1.Node, version, image string) string {
	if was == nil {
		return ""
	}
	found, driver := false, false
	for at := range nodes {
		for _, s := range slicesOf(&nodes[at]) {
			if s.Profile == "" && s.Model == was.Model && int32(s.SMs) == was.SMs && s.MemoryMiB == was.MemoryMiB {
				found = true
				driver = driver || nodes[at].Labels[labelDriver] == was.Driver
			}
		}
	}
	switch {
	case bounded(version, 128) != was.Gshare:
		return "it was measured with gshare " + was.Gshare + ", which is " + version + " now"
	case !found:
		return "no node has a GPU like the one on which it was measured"
	case !driver:
		return "no node with such a GPU has the driver " + was.Driver + " any more"
	case image != "" && bounded(image, maxImage) != was.Image:
		return "the replicas run the image " + image + ", measured was " + was.Image
	}
	return ""
}

// hasNewImage reports whether a complete profile is to be measured again, as the replicas run another image than was measured. It is once for an image:
// where trials get the earlier one from their node, which has the tag already, it would be for ever. While replicas of two images take turns it is seldom.
func hasNewImage(s *state, status *api.GPUProfileStatus) bool {
	image := bounded(s.served, maxImage)
	return s.profile.Spec.Remeasure == api.RemeasureNewImage && image != "" && image != status.ReplicasImage &&
		status.Fingerprint != nil && image != status.Fingerprint.Image && s.now.Sub(status.Completed.Time) >= remeasurePause
}

// remeasurePause is the least time between the end of a measurement and the next one for a new image.
const remeasurePause = time.Hour

// maxImage bounds the name of an image in a status.
const maxImage = 1024
