package seldom

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		opened := 0
		for range 25 {
			if g.Opens(10 * time.Second) {
				opened++
			}
			time.Sleep(time.Second)
		}
		if opened != 3 {
			t.Errorf("the gate opened %d times in 25 seconds, want 3", opened)
		}
	})
}
