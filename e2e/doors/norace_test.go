//go:build !race

package doors

const raceDetector = false
