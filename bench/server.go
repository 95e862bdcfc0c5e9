package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// server is a server that runs only for one measurement.
type server struct {
	cmd  *exec.Cmd
	addr string
	dir  string
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer l.Close()
	return l.Addr().String()
}

// startRedis starts a redis-server without persistence. If wrapper is not empty, it is a command that runs the server.
func startRedis(wrapper ...string) (*server, error) {
	addr := freeAddress()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	args := append(wrapper, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	if len(wrapper) > 0 {
		args = append(args, "--hz", "1") // the least housekeeping, so that it hardly affects the measurement
	}
	s := &server{cmd: exec.Command(args[0], args[1:]...), addr: addr, dir: dir}
	if err := s.start(); err != nil {
		return nil, fmt.Errorf("%s: %w: install it from the system's packages", args[0], err)
	}
	return s, nil
}

// start starts the server, and waits until it accepts connections.
func (s *server) start() error {
	s.cmd.SysProcAttr = withParent()
	err := s.cmd.Start()
	if err == nil {
		if err = s.await(); err == nil {
			return nil
		}
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
	return err
}

// await waits until the server accepts connections.
func (s *server) await() error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			return c.Close()
		}
	}
	return errors.New("the server does not accept connections")
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// cpu returns the processor time of the server, to a hundredth of a second.
func (s *server) cpu() time.Duration {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat"))
	must(err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime, the 14th and 15th of all fields
		n, err := strconv.ParseInt(f, 10, 64)
		must(err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
