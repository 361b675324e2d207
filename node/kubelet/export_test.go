package kubelet

import "golang.org/x/time/rate"

// Unlimited lets a test make as many calls as it likes: the fake kubelet refuses only those that it is told to.
func (r *Records) Unlimited() {
	r.limit.SetLimit(rate.Inf)
	r.pods.(*PodsAPI).limit.SetLimit(rate.Inf)
}
