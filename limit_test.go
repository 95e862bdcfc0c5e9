package sluice_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

func TestParseLimit(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]sluice.Limit{
		"100/minute":                   {Count: 100, Period: time.Minute},
		"100/minute burst 20":          {Count: 100, Period: time.Minute, Burst: 20},
		" 100 / minute  burst  20 ":    {Count: 100, Period: time.Minute, Burst: 20},
		"5/90s":                        {Count: 5, Period: 90 * time.Second},
		"1/second":                     {Count: 1, Period: time.Second},
		"1/sec":                        {Count: 1, Period: time.Second},
		"1/s":                          {Count: 1, Period: time.Second},
		"1/min":                        {Count: 1, Period: time.Minute},
		"1/m":                          {Count: 1, Period: time.Minute},
		"1/hour":                       {Count: 1, Period: time.Hour},
		"1/h":                          {Count: 1, Period: time.Hour},
		"1/day":                        {Count: 1, Period: day},
		"1/d":                          {Count: 1, Period: day},
		"1/7d":                         {Count: 1, Period: 7 * day},
		"1/7d12h":                      {Count: 1, Period: 7*day + 12*time.Hour},
		"1/1h30m":                      {Count: 1, Period: 90 * time.Minute},
		"3/1.5h":                       {Count: 3, Period: 90 * time.Minute},
		"10/250ms":                     {Count: 10, Period: 250 * time.Millisecond},
		"1/1us":                        {Count: 1, Period: time.Microsecond},
		"1/1µs":                        {Count: 1, Period: time.Microsecond},
		"1/36500d":                     {Count: 1, Period: 36500 * day},
		"010/minute burst 007":         {Count: 10, Period: time.Minute, Burst: 7}, // decimal, always
		"9223372036854775807/106751d":  {Count: math.MaxInt64, Period: 106751 * day},
		"1000000/second burst 1000000": {Count: 1_000_000, Period: time.Second, Burst: 1_000_000},
	} {
		got, err := sluice.ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseLimitErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                               `there is no "/"`,
		"100":                            `there is no "/"`,
		"100 per minute":                 `there is no "/"`,
		"/minute":                        `the count "" is not a whole number of at least 1`,
		"100/":                           `there is no period behind the "/"`,
		"100/ ":                          `there is no period behind the "/"`,
		"0/minute":                       "the count is 0, and must be at least 1",
		"-5/minute":                      `the count "-5" is not a whole number of at least 1`,
		"+5/minute":                      `the count "+5" is not a whole number`,
		"NaN/minute":                     `the count "NaN" is not a whole number`,
		"Inf/minute":                     `the count "Inf" is not a whole number`,
		"1.5/minute":                     `the count "1.5" is not a whole number`,
		"1e3/minute":                     `the count "1e3" is not a whole number`,
		"0x10/minute":                    `the count "0x10" is not a whole number`,
		"1_000/minute":                   `the count "1_000" is not a whole number`,
		"1,000/minute":                   `the count "1,000" is not a whole number`,
		"١٠/minute":                      "is not a whole number",
		"9223372036854775808/s":          "the count 9223372036854775808 is too large",
		strings.Repeat("9", 1000) + "/s": "is too large",
		"100/minutes":                    `the period "minutes" is written minute`,
		"100/seconds":                    `the period "seconds" is written second`,
		"100/decade":                     `the period "decade" is neither`,
		"100/Minute":                     `the period "Minute" is neither`,
		"100/60":                         `the period "60" is written 60s`,
		"100/1 minute":                   `the period "1" is written 1s`,
		"100/1h2d":                       `the period "1h2d" is neither`,
		"100/1.5d":                       `the period "1.5d" is neither`,
		"100/-1d":                        `the period "-1d" is neither`,
		"100/1d1d":                       `the period "1d1d" is neither`,
		"100/0s":                         "the period is 0s, and must be positive",
		"100/0d":                         "the period is 0s, and must be positive",
		"100/-90s":                       "the period is -1m30s, and must be positive",
		"100/100ns":                      "the period 100ns is not a whole number of microseconds",
		"100/1d-1h":                      `the period "1d-1h" has a sign in the middle`,
		"100/1d+1h":                      `the period "1d+1h" has a sign in the middle`,
		"100/106752d":                    `the period "106752d" is longer than 292 years`,
		"100/106751d24h":                 `the period "106751d24h" is longer than 292 years`,
		"100/99999999999999999999d":      `the period "99999999999999999999d" is longer than 292 years`,
		"100/minute burst":               `"burst" behind the period is not "burst N"`,
		"100/minute burst 0":             "the burst is 0, and must be at least 1",
		"100/minute burst -1":            `the burst "-1" is not a whole number`,
		"100/minute burst 20 per key":    `behind the period is not "burst N"`,
		"100/minute bursts 20":           `"bursts 20" behind the period is not "burst N"`,
		"100/minute\x00":                 "is neither",
		"100/\xff":                       "is neither",
	} {
		got, err := sluice.ParseLimit(text)
		if err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
			continue
		}
		message := err.Error()
		if !strings.Contains(message, want) || !strings.HasPrefix(message, "limit \"") || !strings.HasSuffix(message, `write it as in "100/minute burst 20"`) {
			t.Errorf("%q: %v\nwant %s", text, message, want)
		}
		if len(message) > 400 {
			t.Errorf("%q: a message of %d bytes", text, len(message))
		}
		if (got != sluice.Limit{}) {
			t.Errorf("%q: %+v beside the error", text, got)
		}
	}
}

func TestLimitString(t *testing.T) {
	for want, l := range map[string]sluice.Limit{
		"100/minute":          {Count: 100, Period: time.Minute},
		"100/minute burst 20": {Count: 100, Period: time.Minute, Burst: 20},
		"1/7d":                {Count: 1, Period: 7 * 24 * time.Hour},
		"5/1m30s":             {Count: 5, Period: 90 * time.Second, Algorithm: sluice.GCRA},
		"0/0s":                {},
	} {
		if got := l.String(); got != want {
			t.Errorf("%+v is written as %q, want %q", l, got, want)
		}
	}
}

// FuzzParseLimit: what is read is written so that it is read as the same, and whatever is
// read has a plan or an error.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{
		"100/minute burst 20", "5/90s", "1/7d12h", "1/106751d23h47m16.854775s", "010/1us", "3/1.5h burst 1", "1/1d+1h", "1/.5s",
		"9223372036854775807/s burst 9223372036854775807", "1/1000000000us", "1/0d5s", "7/1.0000001ms", "-1/s", "1/d burst 0x1",
		"10000/month from 15", "1/month from 031", "1/month from 1 ", "1/month from 32", "1/month burst 1",
	} {
		f.Add(s, byte(len(s)))
	}
	f.Fuzz(func(t *testing.T, s string, algorithm byte) {
		l, err := sluice.ParseLimit(s)
		if err != nil {
			return
		}
		if l.Count < 1 || l.Period < time.Microsecond || l.Period%time.Microsecond != 0 || l.Burst < 0 || l.MonthDay < 0 || l.MonthDay > 31 {
			t.Fatalf("%q was read as %+v", s, l)
		}
		again, err := sluice.ParseLimit(l.String())
		if err != nil || again != l {
			t.Fatalf("%q was read as %+v, and its %q as %+v, %v", s, l, l, again, err)
		}
		checkPlan(t, l)
		l.Algorithm = sluice.Algorithm(algorithm % 8)
		checkPlan(t, l)
	})
}

func TestAlgorithmNames(t *testing.T) {
	names := "token_bucket leaky_bucket gcra fixed_window sliding_window_counter sliding_window_log sliding_window_log_exact"
	for i, name := range strings.Fields(names) {
		a, err := sluice.ParseAlgorithm(name)
		if err != nil || a != sluice.Algorithms()[i] || a.String() != name {
			t.Errorf("%q is algorithm %v, %v", name, a, err)
		}
	}
	if len(sluice.Algorithms()) != 7 {
		t.Errorf("%d algorithms, want 7", len(sluice.Algorithms()))
	}
	for _, name := range []string{"", "GCRA", "token bucket", "tokenbucket"} {
		if _, err := sluice.ParseAlgorithm(name); err == nil || !strings.Contains(err.Error(), "token_bucket, leaky_bucket, gcra") {
			t.Errorf("%q: %v, want an error that lists the names", name, err)
		}
	}
	if s := sluice.Algorithm(77).String(); s != "algorithm(77)" {
		t.Errorf("algorithm 77 is %q", s)
	}
}
