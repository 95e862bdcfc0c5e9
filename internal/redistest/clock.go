package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

//go:embed testdata/clock.c
var clockSource string

// StartMovable is like [Start], but starts a server with a clock that [Server.SetClock] can set. It needs gcc, like
// the race detector. (faketime fails for servers with jemalloc, which reads the time before faketime is ready.)
func StartMovable(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := prepare(t, Binaries(t)[0], settings...)
	source, library := s.write("clock.c", clockSource), filepath.Join(s.Dir, "clock.so")
	if out, err := exec.Command(testkit.Program(t, "gcc", "cc"), "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	s.env = []string{"LD_PRELOAD=" + library, "CLOCK_MOVED_BY=" + s.write("clock", "\x00\x00\x00\x00\x00\x00\x00\x00")}
	s.start()
	return s
}

// SetClock sets the clock of a server of [StartMovable] to the real time plus d, which is truncated to whole
// seconds.
func (s *Server) SetClock(d time.Duration) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.Dir, "clock"), os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(binary.NativeEndian.AppendUint64(nil, uint64(d/time.Second))); err != nil {
		s.t.Fatal(err)
	}
}

// Now returns the server's clock.
func (s *Server) Now() time.Time {
	s.t.Helper()
	seconds, micros, _ := strings.Cut(s.Do("TIME"), "\n")
	sec, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	usec, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return time.Unix(sec, usec*1000)
}
