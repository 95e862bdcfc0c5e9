//go:build long

package telemetry

import "testing"

func TestLongSubjectsMemory(t *testing.T) {
	testSubjectsMemory(t, fullRules, 30, 700)
	testSubjectsMemory(t, mostRules+10, 10, 150)
}
