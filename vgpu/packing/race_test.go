//go:build race

package packing

// raceDetector reports that this test binary is about fifteen times slower than usual.
const raceDetector = true
