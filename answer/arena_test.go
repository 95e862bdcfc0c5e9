package answer

import (
	"slices"
	"strings"
	"testing"
)

// Text of any length is kept, also where a chunk has no room for it.
func TestArenaText(t *testing.T) {
	var a arena
	var kept, want []string
	for n := range 3 * textChunk {
		text := []byte(strings.Repeat(string(rune('a'+n%26)), n))
		if n%100 != 0 && n > 200 {
			continue
		}
		kept, want = append(kept, a.text(text)), append(want, string(text))
		clear(text)
	}
	if !slices.Equal(kept, want) {
		t.Error("what was kept has changed")
	}
}
