package answer

import "unsafe"

// arena provides the values of fields. They outlive the call that makes them, so each would cost an
// allocation; instead they are cut from chunks that last for several calls. What has been cut off is
// never written again.
type arena struct {
	texts []byte
	lists [][1]string
	used  int // of lists
}

// A chunk lives for as long as any of the answers with values in it.
const (
	textChunk = 1 << 10
	listChunk = 60
)

// text returns a copy of b.
func (a *arena) text(b []byte) string {
	if len(a.texts) < len(b) {
		a.texts = make([]byte, max(textChunk, len(b)))
	}
	n := copy(a.texts, b)
	s := unsafe.String(unsafe.SliceData(a.texts), n)
	a.texts = a.texts[n:]
	return s
}

// list returns the list of one value. It has no room to grow into its neighbour.
func (a *arena) list(value string) []string {
	if a.used == len(a.lists) {
		a.lists, a.used = make([][1]string, listChunk), 0
	}
	one := &a.lists[a.used]
	a.used++
	one[0] = value
	return one[:]
}
