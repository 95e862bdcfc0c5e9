package replay

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
)

// most returns the maximum number of requests that a bucket may allow if their times are known only to the second: in
// each second, its level at the beginning and the units that return until its end. The level is in units of 1/period of
// a request.
func most(perSecond map[int64]int64, count, period, burst int64) (passed int64) {
	has, first, last := burst*period, int64(1<<62), int64(0)
	for at := range perSecond {
		first, last = min(first, at), max(last, at)
	}
	for at := first; at <= last; at++ {
		n := min(perSecond[at], (has+count)/period)
		passed += n
		has = min(burst*period, has+count-n*period)
	}
	return passed
}

// For a log in whole seconds, the report counts denials as uncertain that may not occur at the true times. The count is
// not too small, and at most a quarter too large.
func TestUnsureRefusals(t *testing.T) {
	t.Parallel()
	const count, period, burst = 200, 60, 20
	r := rand.New(rand.NewPCG(1, 1))
	var log []logtest.Request
	perSecond := map[string]map[int64]int64{}
	for c := range 24 {
		client := fmt.Sprintf("192.0.2.%d", c)
		perSecond[client] = map[int64]int64{}
		for s := range int64(300) {
			n := 25 // far above the limit
			switch c % 3 {
			case 1: // near it
				n = r.IntN(8)
			case 2: // in bursts, with pauses in which the bucket fills up
				if n = 0; s%40 < 3 {
					n = r.IntN(20)
				}
			}
			perSecond[client][s] = int64(n)
			for range n {
				log = append(log, logtest.Request{At: noon.Add(time.Duration(s) * time.Second), Client: client, Method: "GET", Target: "/"})
			}
		}
	}
	refused, least := int64(0), int64(0)
	for _, seconds := range perSecond {
		passes := logtest.Bucket(count, period, burst)
		asked, passed := int64(0), int64(0)
		for s := range int64(300) {
			for range seconds[s] {
				if asked++; passes(s) {
					passed++
				}
			}
		}
		refused, least = refused+asked-passed, least+asked-most(seconds, count, period, burst)
	}
	unsure := func(rule string) (unsure, all int64) {
		report := reportOf(t, logtest.ByTime(log), "rules: [{name: a, key: [client_ip], "+rule+"}]")
		m := regexp.MustCompile(`up to ([\d,]+) of ([\d,]+) denials`).FindStringSubmatch(strings.Join(report.Notes, "\n"))
		if m == nil {
			return 0, report.Refused
		}
		unsure, _ = strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
		all, _ = strconv.ParseInt(strings.ReplaceAll(m[2], ",", ""), 10, 64)
		return unsure, all
	}
	got, all := unsure("limit: 200/minute burst 20")
	if all != refused {
		t.Fatalf("%d refusals, want %d", all, refused)
	}
	if could := refused - least; got < could || got > could+could/4 || 20*could > refused {
		t.Errorf("%d of %d denials are reported as uncertain, and %d may not occur", got, refused, could)
	}
	for _, windows := range []string{"fixed_window", "sliding_window_log"} {
		if got, all := unsure("limit: 200/minute, algorithm: " + windows); got != 0 || all == 0 {
			t.Errorf("%s: %d of %d denials are reported as uncertain, want none", windows, got, all)
		}
	}
}
