package recommend

import "unsafe"

// text is b as a string, for as long as b is not changed.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
