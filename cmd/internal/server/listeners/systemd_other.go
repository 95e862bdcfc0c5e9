//go:build !linux

package listeners

func monotonic() string { return "" }
