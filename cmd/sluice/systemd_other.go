//go:build !linux

package main

func monotonic() string { return "" }
