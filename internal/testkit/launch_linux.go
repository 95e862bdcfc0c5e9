package testkit

import "syscall"

// DiesWithTest returns process attributes with which the kernel kills a process when the test process has ended, even
// if that was killed.
func DiesWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
