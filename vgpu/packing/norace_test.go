//go:build !race

package packing

const raceDetector = false
