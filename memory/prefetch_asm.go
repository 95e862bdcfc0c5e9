//go:build amd64 || arm64

package memory

// prefetch has the processor fetch two buckets without waiting for them.
//
//go:noescape
func prefetch(first, second *bucket)
