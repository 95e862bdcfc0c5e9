package testkit

import (
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// Lasting wraps t for resources that outlive the test. Its Cleanup never runs functions, so that a [Port], for
// example, stays reserved until the process ends.
func Lasting(t testing.TB) testing.TB { return lasting{t} }

type lasting struct{ testing.TB }

var kept struct {
	sync.Mutex
	cleanups []func()
	servers  []*exec.Cmd
}

// Cleanup keeps f, and so the files that f would close, from being garbage collected.
func (lasting) Cleanup(f func()) {
	kept.Lock()
	defer kept.Unlock()
	kept.cleanups = append(kept.cleanups, f)
}

// guard is a shell script that runs between the test and a server. It reads a pipe that only this process has open
// for writing. When this process ends, even if it is killed, the pipe closes. Then the script sends a signal to the
// server, and removes its directory.
const guard = `
trap '' INT
signal=$1 dir=$2
shift 2
exec 3<&0
"$@" 3<&- &
server=$!
{
	cat <&3 >/dev/null
	kill -s "$signal" $server
	while kill -0 $server 2>/dev/null; do sleep 0.05; done
	rm -rf "$dir"
} &
exec 3<&-
wait $server
`

// StartGuarded starts the command of a server that runs until this process ends. Then the server gets the signal,
// for example "KILL", and the directory is removed. No goroutine waits for the server. The returned function
// reports whether the server has ended.
func StartGuarded(command *exec.Cmd, signal, dir string) (ended func() bool, err error) {
	command.Args = append([]string{"sh", "-c", guard, "sh", signal, dir, command.Path}, command.Args[1:]...)
	if command.Path, err = exec.LookPath("sh"); err != nil {
		return nil, err
	}
	if _, err := command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	kept.Lock()
	defer kept.Unlock()
	kept.servers = append(kept.servers, command)
	return func() bool {
		pid, err := syscall.Wait4(command.Process.Pid, nil, syscall.WNOHANG, nil)
		return pid != 0 || err != nil
	}, nil
}
