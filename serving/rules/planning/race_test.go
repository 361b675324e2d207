//go:build race

package planning

const raceDetector = true
