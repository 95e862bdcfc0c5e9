package testkit

import "syscall"

// diesWithTest has the kernel end a process when that of the test has ended, however it ended.
func diesWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
