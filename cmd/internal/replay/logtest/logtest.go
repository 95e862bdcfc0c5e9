// Package logtest writes and reads access logs for tests, and decides their requests without Sluice's code.
package logtest

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Request is a line of a log.
type Request struct {
	At             time.Time
	Client, Method string
	Target         string
	Status         int // 200 if it is 0
}

// Combined returns a log of the combined format.
func Combined(requests []Request) string {
	var b strings.Builder
	for _, r := range requests {
		fmt.Fprintf(&b, "%s - - [%s] \"%s %s HTTP/1.1\" %d 12 \"-\" \"a test\"\n",
			r.Client, r.At.Format("02/Jan/2006:15:04:05 -0700"), r.Method, r.Target, cmp.Or(r.Status, 200))
	}
	return b.String()
}

// ByTime sorts requests, and keeps the order of those of one time.
func ByTime(requests []Request) []Request {
	slices.SortStableFunc(requests, func(a, b Request) int { return a.At.Compare(b.At) })
	return requests
}

// Write returns the name of a new file with a text.
func Write(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// combined reads a line of the combined format with nothing of Sluice.
var combined = regexp.MustCompile(`^(\S+) .*? \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d+) `)

// Real returns the requests of a real log in the order of their times: that of SLUICE_TEST_ACCESS_LOG in
// the combined format, else those of [testkit.AccessLog].
func Real(t testing.TB) (all []Request) {
	t.Helper()
	name := os.Getenv("SLUICE_TEST_ACCESS_LOG")
	if name == "" {
		for _, r := range testkit.AccessLog(t) {
			all = append(all, Request{r.At, r.Address, r.Method, r.Target, 200})
		}
		return ByTime(all)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := combined.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("%q is no line of the combined format", lines.Text())
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		status, _ := strconv.Atoi(m[5])
		all = append(all, Request{at, m[1], m[3], m[4], status})
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%d requests: %v", len(all), err)
	}
	return ByTime(all)
}

// Oracle reports whether one more request of a subject is allowed at a time in seconds, which never goes
// back, and counts it if so.
type Oracle func(at int64) bool

// Bucket drains count in a period, and holds burst. Its level is in units of 1/period of a request, so
// that all numbers are whole.
func Bucket(count, period, burst int64) Oracle {
	level, last := int64(0), int64(0)
	return func(at int64) bool {
		level = max(0, level-(at-last)*count)
		last = at
		if level+period > burst*period {
			return false
		}
		level += period
		return true
	}
}

// FixedWindow allows count in each window.
func FixedWindow(count, period int64) Oracle {
	used := map[int64]int64{}
	return func(at int64) bool {
		if used[at/period] == count {
			return false
		}
		used[at/period]++
		return true
	}
}

// SlidingCounter allows count in a window that slides over the last two, as if each were even.
func SlidingCounter(count, period int64) Oracle {
	used := map[int64]int64{}
	return func(at int64) bool {
		n := at / period
		if used[n-1]*(period-at%period)+(used[n]+1)*period > count*period {
			return false
		}
		used[n]++
		return true
	}
}

// SlidingLog allows count in any period. A request counts for extra seconds more than that.
func SlidingLog(count, period, extra int64) Oracle {
	var allowed []int64
	return func(at int64) bool {
		allowed = slices.DeleteFunc(allowed, func(t int64) bool { return t <= at-period-extra })
		if int64(len(allowed)) >= count {
			return false
		}
		allowed = append(allowed, at)
		return true
	}
}
