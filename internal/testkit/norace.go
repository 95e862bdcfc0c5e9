//go:build !race

package testkit

// Race reports whether the test runs with the race detector.
const Race = false
