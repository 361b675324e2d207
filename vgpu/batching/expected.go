package batching

import "time"

// Weights of a measured latency above and below the expected one: a replica that has become slow is noticed within few requests, one quick answer
// means little. One that is late counts as at most maxStep times what is expected, so that it alone does not double that: a queue is expected to take
// the sum over its requests, and would be refused.
const (
	riseWeight = 0.3
	fallWeight = 0.03
	maxStep    = 4
)

// Expect returns what latency to expect of a replica after it took some time where another was expected. Without an expectation, 0, the first
// measurement counts no more than others: a server often answers it late.
func Expect(expected, took time.Duration) time.Duration {
	if took <= expected {
		return expected - time.Duration(fallWeight*float64(expected-took))
	}
	if expected > 0 {
		took = min(took, maxStep*expected)
	}
	return expected + time.Duration(riseWeight*float64(took-expected))
}
