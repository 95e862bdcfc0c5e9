package accesslog

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Times are read as package time reads them.
func TestTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		zone := time.FixedZone("", (rng.IntN(2*14*4)-14*4)*900)
		want := time.Date(rng.IntN(10000), time.Month(1+rng.IntN(12)), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1e6)*1000, zone)
		if rng.IntN(4) == 0 { // around the end of a month
			want = time.Date(rng.IntN(9999), time.Month(1+rng.IntN(12)), 31, rng.IntN(24), 0, 0, 0, zone)
		}
		if got, ok := logTime(want.Format("02/Jan/2006:15:04:05 -0700"), nil); !ok || got != want.Truncate(time.Second).UnixMicro() {
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

func logTime(text string, zone *time.Location) (int64, bool) {
	var m moment
	if !m.logTime([]byte(text)) {
		return 0, false
	}
	return m.unix(zone)
}

// The magnitude of a time since the epoch determines its unit. Other times are recognized by their form.
func TestAnyTime(t *testing.T) {
	want := time.Date(2026, 11, 20, 10, 15, 32, 524_102_000, time.UTC)
	for _, s := range []string{
		"1795169732.524102", "1795169732524.102", "1795169732524102", "1795169732524102400", "1.795169732524102e9", "1.7951697325241024e+18",
		"2026-11-20T10:15:32.524102Z", "2026-11-20 10:15:32.524102", "2026-11-20T11:15:32.524102+01:00", "2026-11-20T11:15:32,524102+0100",
		"2026/11/20 10:15:32.5241024", "2026-11-20 10:15:32.524102 +0000", "2026-11-20 10:15:32.524102 UTC",
	} {
		if got, ok := anyTime([]byte(s), nil); !ok || got != want.UnixMicro() {
			t.Errorf("%s is %v", s, time.UnixMicro(got).UTC())
		}
	}
}

// Numbers are read as strconv reads them, times a power of ten. Durations are read in the format of package time.
func TestNumbersAndDurations(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		x := rng.Float64() * []float64{1e-6, 1, 1e3, 1e9, 1e12}[rng.IntN(5)]
		for _, format := range []byte{'f', 'e', 'g'} {
			s := strconv.FormatFloat(x, format, -1, 64)
			shift := rng.IntN(10) - 3
			want := x
			for range max(shift, 0) {
				want *= 10
			}
			for range max(-shift, 0) {
				want /= 10
			}
			if got, ok := scaled([]byte(s), shift); want < 1e18 && (!ok || float64(got) > want*(1+1e-12)+1e-6 || float64(got) < want*(1-1e-12)-1.000001) {
				t.Fatalf("%s times 1e%d is %d, want %v", s, shift, got, want)
			}
		}
		d := 1 + time.Duration(rng.Int64N(int64(10*time.Hour))>>rng.IntN(45))
		// The fraction of each component is cut off.
		if got, ok := lasting([]byte(d.String()), 0); !ok || got != d.Microseconds() && got != d.Microseconds()-1 {
			t.Fatalf("%v is %d µs", d, got)
		}
	}
}

// Texts that are not a time, number or duration are refused, even if package time would accept them.
func TestUnreadable(t *testing.T) {
	for section, read := range map[string]func(string) (int64, bool){
		"times of logs":     func(s string) (int64, bool) { return logTime(s, nil) },
		"times of ISO 8601": func(s string) (int64, bool) { return isoTime([]byte(s), nil) },
		"times":             func(s string) (int64, bool) { return anyTime([]byte(s), nil) },
		"decimals":          func(s string) (int64, bool) { return decimal([]byte(s), 1e6) },
		"numbers":           func(s string) (int64, bool) { return scaled([]byte(s), 0) },
		"durations":         func(s string) (int64, bool) { return lasting([]byte(s), 0) },
	} {
		for _, row := range testkit.SectionOf(t, "testdata/mistakes.txt", section).Rows(t) {
			if n, ok := read(row.In); ok {
				t.Errorf("%q is accepted among the %s: %d", row.In, section, n)
			}
		}
	}
}

// A time without a zone is in the given zone, also shortly before and after a change of the clock.
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
		if got, ok := logTime(s, berlin); !ok || got != want.UnixMicro() {
			t.Errorf("%s is %v, want %v", s, time.UnixMicro(got).UTC(), want.UTC())
		}
	}
	if got, _ := logTime("20/Nov/2026:10:15:32 +0300", berlin); got != time.Date(2026, 11, 20, 7, 15, 32, 0, time.UTC).UnixMicro() {
		t.Error("the zone of the line does not take precedence")
	}
}
