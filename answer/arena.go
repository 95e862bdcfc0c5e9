package answer

import "unsafe"

// arena provides memory for the values of fields. Values outlive the call that makes them, so each would cost an
// allocation. Instead, they are cut from chunks that last for several calls. Memory that has been given to a value
// is never written again.
type arena struct {
	texts []byte
	lists [][1]string
	used  int // used part of lists
}

// These are the sizes of chunks. A chunk stays in memory as long as any value in it.
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

// list returns a list of one value. Its capacity is one, so that appending to it cannot overwrite other lists.
func (a *arena) list(value string) []string {
	if a.used == len(a.lists) {
		a.lists, a.used = make([][1]string, listChunk), 0
	}
	one := &a.lists[a.used]
	a.used++
	one[0] = value
	return one[:]
}
