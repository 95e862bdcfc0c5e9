//go:build race

package doors

const raceDetector = true
