//go:build race

package frameworks

const raceDetector = true
