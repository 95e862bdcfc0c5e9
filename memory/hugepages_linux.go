package memory

import (
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20

// hugePages asks for huge pages for a piece of memory, and for what shares them with it: of
// several pieces most lie side by side. Where the system gives them always, or never, it changes
// nothing.
func hugePages(piece unsafe.Pointer, size uintptr) {
	if size < hugePage/4 { // a small store stays small, and one of 64 MB grows by half a page
		return
	}
	from := uintptr(piece) &^ (hugePage - 1)
	to := (uintptr(piece) + size + hugePage - 1) &^ (hugePage - 1)
	// It is a hint, and small pages do as well.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
}
