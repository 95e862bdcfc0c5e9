package memory

import (
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20

// hugePages requests huge pages for a piece of memory, rounded up to whole huge pages. These may include
// neighboring memory: most pieces lie side by side. It changes nothing on systems that always or never use huge
// pages.
func hugePages(piece unsafe.Pointer, size uintptr) {
	if size < hugePage/4 { // rounding up would add too much to a small store
		return
	}
	from := uintptr(piece) &^ (hugePage - 1)
	to := (uintptr(piece) + size + hugePage - 1) &^ (hugePage - 1)
	// An error is ignored: the call is only a hint, and small pages work, too.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
}
