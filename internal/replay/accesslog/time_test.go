package accesslog

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Times are those that package time reads.
func TestTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		zone := time.FixedZone("", (rng.IntN(2*14*4)-14*4)*900)
		want := time.Date(rng.IntN(10000), time.Month(1+rng.IntN(12)), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1e6)*1000, zone)
		if rng.IntN(4) == 0 { // around the end of a month
			want = time.Date(rng.IntN(9999), time.Month(1+rng.IntN(12)), 31, rng.IntN(24), 0, 0, 0, zone)
		}
		var m moment
		if !m.logTime([]byte(want.Format("02/Jan/2006:15:04:05 -0700"))) {
			t.Fatal(want)
		}
		if got, ok := m.unix(nil); !ok || got != want.Truncate(time.Second).UnixMicro() {
			t.Fatalf("%v is read as %v", want, time.UnixMicro(got).In(zone))
		}
		if got, ok := isoTime([]byte(want.Format("2006-01-02T15:04:05.000000Z07:00")), nil); !ok || got != want.UnixMicro() {
			t.Fatalf("%v is read as %v", want, time.UnixMicro(got).In(zone))
		}
		if us := want.UnixMicro(); us >= 0 && us < 1<<62 {
			if got, ok := decimal(fmt.Appendf(nil, "%d.%06d", us/1e6, us%1e6), 1e6); !ok || got != us {
				t.Fatalf("%d is read as %d", us, got)
			}
		}
	}
}

// What is no time is not read as one, also where package time would be lenient.
func TestNoTimes(t *testing.T) {
	for _, s := range []string{
		"31/Nov/2026:10:15:32 +0100", "29/Feb/2026:10:15:32 +0100", "29/Feb/2100:10:15:32 +0000", "00/Jan/2026:10:15:32 +0100",
		"20/nov/2026:10:15:32 +0100", "20/Nov/2026:24:15:32 +0100", "20/Nov/2026:10:60:32 +0100", "20/Nov/2026:10:15:61 +0100",
		"20/Nov/2026:10:15:32 0100", "20/Nov/2026:10:15:32 +01:0", "20/Nov/2026:10:15:32 +0160", "2O/Nov/2026:10:15:32 +0100",
		"20/Nov/2026:10:15:32_+0100", "", "20/Nov/20x6:10:15:32 +0100",
	} {
		var m moment
		if ok := m.logTime([]byte(s)); ok {
			if us, ok := m.unix(nil); ok {
				t.Errorf("%q is read as %v", s, time.UnixMicro(us).UTC())
			}
		}
	}
	for _, s := range []string{
		"2026-11-31T10:15:32Z", "2026-02-29T10:15:32Z", "2026-11-20T10:15:32.Z", "2026-11-20T10:15:32.5X", "2026-13-20T10:15:32Z",
		"2026-11-20T10:15", "2026-11-20T10:15:32+1:00", "2026-11-20t10:15:32Z", "2026-11-20T10:15:32ZZ", "-026-11-20T10:15:32Z",
	} {
		if us, ok := isoTime([]byte(s), nil); ok {
			t.Errorf("%q is read as %v", s, time.UnixMicro(us).UTC())
		}
	}
	for _, s := range []string{"", ".5", "1.", "1.x", "x", "-1", "+1", "1e3", "9999999999999", "1.2.3"} {
		if us, ok := decimal([]byte(s), 1e6); ok {
			t.Errorf("%q is read as %d", s, us)
		}
	}
}

// A time without a zone is one of the zone that is given, also on both sides of a change of the clock.
func TestZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"20/Nov/2026:10:15:32", "25/Oct/2026:01:59:59", "25/Oct/2026:03:00:00", "29/Mar/2026:01:59:59", "29/Mar/2026:03:00:00"} {
		want, err := time.ParseInLocation("02/Jan/2006:15:04:05", s, berlin)
		if err != nil {
			t.Fatal(err)
		}
		var m moment
		if !m.logTime([]byte(s)) {
			t.Fatal(s)
		}
		if got, ok := m.unix(berlin); !ok || got != want.UnixMicro() {
			t.Errorf("%s is %v, not %v", s, time.UnixMicro(got).UTC(), want.UTC())
		}
	}
	var m moment
	if !m.logTime([]byte("20/Nov/2026:10:15:32 +0300")) {
		t.Fatal("a time is not read")
	}
	if got, _ := m.unix(berlin); got != time.Date(2026, 11, 20, 7, 15, 32, 0, time.UTC).UnixMicro() {
		t.Error("the zone of a line does not come first")
	}
}
