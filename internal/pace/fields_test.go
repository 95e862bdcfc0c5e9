package pace

import (
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// now is by the client's clock, and dated by the server's, which is an hour behind.
var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	dated = "Date: Sun, 01 Mar 2026 11:00:00 GMT\n"
)

func header(t *testing.T, lines string) http.Header {
	t.Helper()
	h := http.Header{}
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if lines != "" && !ok {
			t.Fatalf("%q is no field", line)
		}
		h.Add(name, value)
	}
	return h
}

func TestStates(t *testing.T) {
	s := time.Second
	for name, c := range map[string]struct {
		fields string
		want   []State
	}{
		"draft 11": {
			"RateLimit-Policy: \"per-ip\";q=100;w=60, \"user-day\";q=5000;w=86400\nRateLimit: \"per-ip\";r=42;t=26, \"user-day\";r=100;t=36000",
			[]State{{"per-ip", 42, 26 * s, 100, 60 * s}, {"user-day", 100, 36000 * s, 5000, 86400 * s}},
		},
		"on several lines": {
			"RateLimit: \"a\";r=1;t=2\nRateLimit: \"b\";r=3;t=4",
			[]State{{"a", 1, 2 * s, 0, 0}, {"b", 3, 4 * s, 0, 0}},
		},
		"a token for a name, as of draft 8":      {"RateLimit: default;r=50;t=30", []State{{"default", 50, 30 * s, 0, 0}}},
		"bytes and connections are no requests":  {"RateLimit-Policy: \"b\";q=1;w=1;qu=\"content-bytes\", \"c\";q=9;qu=\"concurrent-requests\", \"r\";q=5;w=1;qu=\"requests\"\nRateLimit: \"b\";r=0;t=9, \"c\";r=0;t=9, \"r\";r=2;t=1", []State{{"r", 2, s, 5, s}}},
		"no t is no time":                        {"RateLimit: \"a\";r=0", []State{{"a", 0, 0, 0, 0}}},
		"negative":                               {"RateLimit: \"a\";r=-1;t=5, \"b\";r=1;t=-5", nil},
		"no integer":                             {"RateLimit: \"a\";r=1.5;t=5", nil},
		"one error spoils the field":             {"RateLimit: \"a\";r=1;t=5,", nil},
		"draft 7":                                {"RateLimit: limit=100, remaining=50, reset=5\nRateLimit-Policy: 100;w=60", []State{{"100", 50, 5 * s, 100, 60 * s}}},
		"draft 7 without policy":                 {"RateLimit: limit=100, remaining=0, reset=5", []State{{"100", 0, 5 * s, 0, 0}}},
		"draft 3":                                {"RateLimit-Limit: 10\nRateLimit-Remaining: 9\nRateLimit-Reset: 4", []State{{"/10", 9, 4 * s, 0, 0}}},
		"draft 3 with windows":                   {"RateLimit-Limit: 10, 10;w=1, 50;w=60\nRateLimit-Remaining: 9\nRateLimit-Reset: 1", []State{{"/10", 9, s, 10, s}}},
		"draft 6 with policies":                  {"RateLimit-Limit: 100\nRateLimit-Policy: 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 7", []State{{"/100", 0, 7 * s, 100, 60 * s}}},
		"GitHub, by its own clock":               {dated + "X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772363130\nX-RateLimit-Resource: core", []State{{"core/60", 0, 330 * s, 0, 0}}},
		"without a Date it is ours":              {"X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", []State{{"/60", 0, 30 * s, 0, 0}}},
		"Twitter":                                {dated + "x-rate-limit-limit: 900\nx-rate-limit-remaining: 899\nx-rate-limit-reset: 1772362860", []State{{"/900", 899, 60 * s, 0, 0}}},
		"Okta":                                   {dated + "X-Rate-Limit-Limit: 600\nX-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 1772362803", []State{{"/600", 0, 3 * s, 0, 0}}},
		"delta":                                  {dated + "X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 3\nX-RateLimit-Reset: 12", []State{{"/60", 3, 12 * s, 0, 0}}},
		"milliseconds":                           {dated + "X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 3\nX-RateLimit-Reset: 1772362801250", []State{{"/60", 3, 1250 * time.Millisecond, 0, 0}}},
		"floats, as of Discord":                  {dated + "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772362801.5\nX-RateLimit-Reset-After: 1.25", []State{{"/5", 0, 1250 * time.Millisecond, 0, 0}}},
		"floats of the clock":                    {dated + "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772362801.5", []State{{"/5", 0, 1500 * time.Millisecond, 0, 0}}},
		"Reddit's remaining":                     {"X-Ratelimit-Remaining: 598.7\nX-Ratelimit-Reset: 404", []State{{"/", 598, 404 * s, 0, 0}}},
		"durations":                              {"x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s", []State{{"/60", 0, 360 * s, 0, 0}}},
		"a time of RFC 3339":                     {dated + "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2026-03-01T11:00:04Z", []State{{"/5", 0, 4 * s, 0, 0}}},
		"a date of HTTP":                         {dated + "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sun, 01 Mar 2026 11:00:09 GMT", []State{{"/5", 0, 9 * s, 0, 0}}},
		"a reset that has passed":                {dated + "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772362700", []State{{"/5", 0, 0, 0, 0}}},
		"the standard before X-":                 {"RateLimit: \"a\";r=1;t=2\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 9", []State{{"a", 1, 2 * s, 0, 0}}},
		"X- where the standard cannot be read":   {"RateLimit: nonsense\nX-RateLimit-Limit: 4\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 9", []State{{"/4", 0, 9 * s, 0, 0}}},
		"out of a cache":                         {"Age: 3\nRateLimit: \"a\";r=0;t=60", nil},
		"a cache that has asked again":           {"Age: 0\nRateLimit: \"a\";r=0;t=60", []State{{"a", 0, 60 * s, 0, 0}}},
		"no reset, no state":                     {"X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0", nil},
		"negative remaining":                     {"X-RateLimit-Remaining: -1\nX-RateLimit-Reset: 5", nil},
		"infinite":                               {"X-RateLimit-Remaining: " + strings.Repeat("9", 400) + "\nX-RateLimit-Reset: " + strings.Repeat("9", 400), []State{{"/", 1 << 40, time.UnixMilli(1e15).Sub(now), 0, 0}}},
		"nothing":                                {"Content-Type: text/plain", nil},
		"more limits than anybody should have":   {"RateLimit: " + strings.Repeat(`"a";r=1;t=1, `, 40) + `"a";r=1;t=1`, slicesOf(State{"a", 1, s, 0, 0}, maxStates)},
		"a remaining that would be taken for 16": {"X-RateLimit-Remaining: 0x10\nX-RateLimit-Reset: 5", nil},
	} {
		if got := States(header(t, c.fields), now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}

func slicesOf(s State, n int) (all []State) {
	for range n {
		all = append(all, s)
	}
	return all
}

func TestRetryAfter(t *testing.T) {
	for fields, want := range map[string]time.Duration{
		"Retry-After: 17":  17 * time.Second,
		"Retry-After: 0":   0,
		"Retry-After: 1.5": 1500 * time.Millisecond,
		dated + "Retry-After: Sun, 01 Mar 2026 11:00:30 GMT":  30 * time.Second, // whatever our clock says
		"Retry-After: Sun, 01 Mar 2026 12:00:30 GMT":          30 * time.Second,
		dated + "Retry-After: Sunday, 01-Mar-26 11:00:30 GMT": 30 * time.Second,
		dated + "Retry-After: Sun Mar  1 11:00:30 2026":       30 * time.Second,
		dated + "Retry-After: Sun, 01 Mar 2026 11:00:30 UTC":  30 * time.Second,
		dated + "Retry-After: Sun, 01 Mar 2026 10:00:30 GMT":  0,
		"Retry-After: 3600":                         time.Hour,
		"Retry-After: 99999999999999999999":         longest,
		"Retry-After: " + strings.Repeat("9", 1000): longest,
		"Retry-After: -1":                           -1,
		"Retry-After: 1e3":                          -1,
		"Retry-After: NaN":                          -1,
		"Retry-After: 0x10":                         -1,
		"Retry-After: soon":                         -1,
		"Content-Type: text/plain":                  -1,
	} {
		got, ok := RetryAfter(header(t, fields), now)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %v, %v, not %v", fields, got, ok, want)
		}
	}
}

// FuzzStates: whatever a server sends, times and numbers stay such that nothing overflows.
func FuzzStates(f *testing.F) {
	f.Add(`"a";r=1;t=2`, `"a";q=1;w=2`, "5", "10", "1772362801.5", "17")
	f.Add("limit=1, remaining=2, reset=3", "1;w=2", "1, 1;w=9", "1e9", "6m0s", "Sun, 01 Mar 2026 11:00:30 GMT")
	f.Fuzz(func(t *testing.T, rateLimit, policy, limit, remaining, reset, retry string) {
		h := http.Header{
			"Ratelimit": {rateLimit}, "Ratelimit-Policy": {policy}, "Ratelimit-Limit": {limit},
			"Ratelimit-Remaining": {remaining}, "Ratelimit-Reset": {reset}, "Retry-After": {retry},
		}
		states := States(h, now)
		if len(states) > maxStates {
			t.Errorf("%d states", len(states))
		}
		for _, s := range states {
			if s.Left < 0 || s.Left > 1e15 || s.Reset < 0 || s.Quota < 0 || s.Quota > 0 && (s.Window <= 0 || s.Quota > 1e15) {
				t.Errorf("%+v", s)
			}
		}
		if d, ok := RetryAfter(h, now); d < 0 || d == math.MaxInt64 || !ok && d != 0 {
			t.Errorf("Retry-After %q is %v, %v", retry, d, ok)
		}
	})
}

// A server that sends megabytes costs its client neither their parsing nor a name of their length.
func TestLongFields(t *testing.T) {
	long := strings.Repeat("a,", 1<<20)
	const triple = "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 3\nX-RateLimit-Reset: 5"
	for name, h := range map[string]http.Header{
		"one list":    {"Ratelimit": {`"a";r=0;t=9,` + long + "a"}},
		"many values": {"Ratelimit": strings.Split(`"a";r=0;t=9,`+long+"a", ",")},
		"limit":       {"X-Ratelimit-Limit": {strings.Repeat("9", 1<<20)}},
		"resource":    {"X-Ratelimit-Resource": {long}},
		"policy":      {"Ratelimit-Policy": {"10;w=1," + long + "a"}},
	} {
		for name, values := range header(t, triple) {
			if h[name] == nil {
				h[name] = values
			}
		}
		var states []State
		if n := testing.AllocsPerRun(1, func() { states = States(h, now) }); n > 100 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if len(states) != 1 || states[0].Left != 3 || states[0].Reset != 5*time.Second || states[0].Window != 0 || len(states[0].Name) > 20 {
			t.Errorf("%s: %.200v", name, states)
		}
	}
	if d, ok := RetryAfter(http.Header{"Retry-After": {strings.Repeat("0", 1<<20) + "1"}}, now); ok {
		t.Errorf("a Retry-After of a megabyte: %v", d)
	}
}
