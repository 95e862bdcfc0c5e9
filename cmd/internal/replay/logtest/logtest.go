// Package logtest writes and reads access logs for tests, and decides about their requests without Sluice's code.
package logtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	Status         int // 0 means 200
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

// ByTime sorts requests by time. Requests with the same time keep their order.
func ByTime(requests []Request) []Request {
	slices.SortStableFunc(requests, func(a, b Request) int { return a.At.Compare(b.At) })
	return requests
}

// Write writes a text to a new file, and returns the file's name.
func Write(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Real returns the requests of [testkit.AccessLog] in the order of their times.
func Real(t testing.TB) (all []Request) {
	t.Helper()
	for _, r := range testkit.AccessLog(t) {
		all = append(all, Request{r.At, r.Address, r.Method, r.Target, 200})
	}
	return ByTime(all)
}

// Oracle reports whether one more request of a subject is allowed at a time in seconds, and counts the request if
// it is. The times of successive calls must not decrease.
type Oracle func(at int64) bool

// Bucket returns an oracle of a bucket that drains count requests in a period, and holds burst. Its level is in
// units of 1/period of a request, so that all numbers are whole.
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

// SlidingLog returns an oracle that allows count requests in any period. The parameter extra is the number of
// seconds that each request counts in addition to the period.
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
