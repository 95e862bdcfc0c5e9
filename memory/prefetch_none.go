//go:build !amd64 && !arm64

package memory

func prefetch(_, _ *bucket) {}
