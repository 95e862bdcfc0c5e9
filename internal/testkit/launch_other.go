//go:build !linux

package testkit

import "syscall"

func diesWithTest() *syscall.SysProcAttr { return nil }
