//go:build long

package telemetry

import "testing"

func TestLongSubjectsMemory(t *testing.T) { testSubjectsMemory(t, fullRules, 30, 700) }
