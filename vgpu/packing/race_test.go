//go:build race

package packing

// raceDetector says that this test binary is some fifteen times slower than usual.
const raceDetector = true
