package httplimit

import "unsafe"

// values is where the values of fields come from. They outlive the call that makes them,
// so each would be an allocation; instead they are cut from pieces that are enough for
// several calls. What has been cut off is never written again.
type values struct {
	texts []byte
	lists []string
	used  int // of lists
}

// A piece lives for as long as any of the responses whose values are in it.
const (
	textPiece = 1 << 10
	listPiece = 60
)

// keep returns text as a string.
func (v *values) keep(text []byte) string {
	if len(v.texts) < len(text) {
		v.texts = make([]byte, max(textPiece, len(text)))
	}
	n := copy(v.texts, text)
	s := unsafe.String(unsafe.SliceData(v.texts), n)
	v.texts = v.texts[n:]
	return s
}

// list returns the list of one value.
func (v *values) list(value string) []string {
	if v.used == len(v.lists) {
		v.lists, v.used = make([]string, listPiece), 0
	}
	one := v.lists[v.used : v.used+1 : v.used+1]
	v.used++
	one[0] = value
	return one
}
