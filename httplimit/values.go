package httplimit

import "unsafe"

// values is where the values of fields come from. They outlive the call that makes them,
// so each would be an allocation; instead they are cut from pieces that are enough for
// several calls. What has been cut off is never written again.
type values struct {
	text  []byte
	lists []string
}

// A piece lives for as long as any of the responses whose values are in it.
const (
	textPiece = 1 << 10
	listPiece = 60
)

// keep returns text as a string.
func (v *values) keep(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	if len(v.text) < len(text) {
		v.text = make([]byte, max(textPiece, len(text)))
	}
	n := copy(v.text, text)
	s := unsafe.String(&v.text[0], n)
	v.text = v.text[n:]
	return s
}

// list returns the list of one value.
func (v *values) list(value string) []string {
	if len(v.lists) == 0 {
		v.lists = make([]string, listPiece)
	}
	one := v.lists[:1:1]
	v.lists = v.lists[1:]
	one[0] = value
	return one
}
