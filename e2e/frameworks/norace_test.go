//go:build !race

package frameworks

const raceDetector = false
