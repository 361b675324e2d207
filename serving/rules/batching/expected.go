package batching

import "time"

// Weights of a measured latency above and below the expected one: a replica that has become slow is noticed within a few requests, whereas one fast
// answer means little. A late answer counts as at most maxStep times the expected latency, so that it alone does not double the expectation: a queue
// is expected to take the sum over its requests, so its requests would be refused.
const (
	riseWeight = 0.3
	fallWeight = 0.03
	maxStep    = 4
)

// Expect returns the new expected latency of a replica after an answer that took the time took while expected was expected. If there is no
// expectation yet (0), the first measurement gets no more weight than later ones: a server often answers its first request late.
func Expect(expected, took time.Duration) time.Duration {
	if took <= expected {
		return expected - time.Duration(fallWeight*float64(expected-took))
	}
	if expected > 0 {
		took = min(took, maxStep*expected)
	}
	return expected + time.Duration(riseWeight*float64(took-expected))
}
