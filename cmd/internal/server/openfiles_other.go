//go:build !unix

package server

// openFiles returns the maximum number of open files of the process, or 0 if it is unknown.
func openFiles() uint64 { return 0 }
