//go:build !linux

package memory

import "unsafe"

func hugePages(unsafe.Pointer, uintptr) {}
