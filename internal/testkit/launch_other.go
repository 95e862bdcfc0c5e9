//go:build !linux

package testkit

import "syscall"

// DiesWithTest returns process attributes that change nothing: only Linux can do this.
func DiesWithTest() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
