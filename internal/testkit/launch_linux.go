package testkit

import "syscall"

// diesWithTest makes the kernel kill a process when the test process has ended, even if that was killed.
func diesWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
