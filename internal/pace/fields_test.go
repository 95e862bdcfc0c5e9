package pace

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/sluicehq/sluice/internal/testkit"
)

// now is the time by the client's clock.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func header(t *testing.T, lines string) http.Header {
	t.Helper()
	h := http.Header{}
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if lines != "" && !ok {
			t.Fatalf("%q is not a field", line)
		}
		h.Add(name, value)
	}
	return h
}

// The fields of responses have the meanings in testdata/fields.txt.
func TestFields(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/fields.txt") {
		t.Run(c.Name, func(t *testing.T) {
			c.Play(t, func(step string) string {
				h := header(t, step)
				if c.Name == "states" {
					return described(States(h, now))
				}
				if d, found := RetryAfter(h, now); found {
					return d.String()
				}
				return "none"
			})
		})
	}
}

func described(states []State) string {
	switch len(states) {
	case 0:
		return "none"
	case maxStates:
		return "as many as are kept"
	}
	var lines []string
	for _, s := range states {
		line := fmt.Sprintf("%q %d left, reset in %v", s.Name, s.Left, s.Reset)
		if s.Quota > 0 || s.Window > 0 {
			line += fmt.Sprintf(", quota %d in %v", s.Quota, s.Window)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// FuzzStates checks that times and numbers stay within bounds, so that nothing overflows, whatever a server sends.
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

// If a server sends megabytes, the client neither parses all of them nor keeps a name of that length.
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

// FuzzStructured compares the parser of structured fields with another parser.
func FuzzStructured(f *testing.F) {
	for _, s := range []string{
		`"per-ip";r=42;t=26, "user-day";r=4100;t=70848`,
		`limit=100, remaining=50, reset=5`, `100;w=60, 5000;w=86400`,
		`"a\"\\b";pk=:cHsdsRevieWsg==:;b;x=?0;d=@-1;e=1.5;t=*a/b:c`, `("a" b;c);d, ()`,
		`%"f%c3%bc"`, `a=(1 2);b, c;d=1`, `a, a;b=1`, "", " ", ",", `"a",`, `1.`, `-`, `-0`, "\x00", `"`, `(`, `0.1234`, `999999999999999`, `1000000000000000`,
	} {
		f.Add(s)
	}
	for _, s := range []string{`a;b=@1`, `a;b=%"c"`, `a, (b c)`, `a, @1`} {
		if _, ok := parseList(s); ok {
			f.Errorf("%s is accepted", s)
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		mine, ok := parseList(s)
		theirs, err := httpsfv.UnmarshalList([]string{s})
		if ok != (err == nil) && !unread(s) {
			t.Fatalf("list %q: ok is %v, and the other parser returns %v", s, ok, err)
		}
		if ok {
			sameList(t, mine, theirs)
		}
		dictionary, ok := parseDictionary(s)
		other, err := httpsfv.UnmarshalDictionary([]string{s})
		if ok != (err == nil) && !unread(s) {
			t.Fatalf("dictionary %q: ok is %v, and the other parser returns %v", s, ok, err)
		}
		if ok {
			sameDictionary(t, dictionary, other)
		}
	})
}

// unread reports whether a text may have dates, inner lists or display strings, which the parser rejects.
func unread(text string) bool { return strings.ContainsAny(text, "@(%") }

func sameList(t *testing.T, mine []member, theirs httpsfv.List) {
	t.Helper()
	if len(mine) != len(theirs) {
		t.Fatalf("%d members, and the other parser finds %d", len(mine), len(theirs))
	}
	for i := range mine {
		same(t, &mine[i], theirs[i])
	}
}

func sameDictionary(t *testing.T, mine []member, theirs *httpsfv.Dictionary) {
	t.Helper()
	last := map[string]*member{}
	for i := range mine {
		last[mine[i].key] = &mine[i]
	}
	if len(last) != len(theirs.Names()) {
		t.Fatalf("%d keys, and the other parser finds %d", len(last), len(theirs.Names()))
	}
	for key, m := range last {
		other, found := theirs.Get(key)
		if !found {
			t.Fatalf("the other parser has no %q", key)
		}
		same(t, m, other)
	}
}

func same(t *testing.T, mine *member, theirs httpsfv.Member) {
	t.Helper()
	other := theirs.(httpsfv.Item)
	params := other.Params
	if a, b := plain(mine.value), theirPlain(other.Value); !reflect.DeepEqual(a, b) {
		t.Fatalf("%#v, and the other parser finds %#v", a, b)
	}
	names := map[string]bool{}
	for _, p := range mine.parameters {
		names[p.key] = true
		other, found := params.Get(p.key)
		if a, b := plain(mine.parameter(p.key)), theirPlain(other); !found || !reflect.DeepEqual(a, b) {
			t.Fatalf("parameter %s is %#v, and the other parser finds %#v", p.key, a, b)
		}
	}
	if len(names) != len(params.Names()) {
		t.Fatalf("%d parameters, and the other parser finds %d", len(names), len(params.Names()))
	}
}

// plain makes a value comparable with theirPlain of a value of the other parser.
func plain(v any) any {
	switch v := v.(type) {
	case token:
		return "token " + string(v)
	case []byte:
		return append([]byte{}, v...)
	}
	return v
}

func theirPlain(v any) any {
	switch v := v.(type) {
	case httpsfv.Token:
		return "token " + string(v)
	case []byte:
		return append([]byte{}, v...)
	}
	return v
}
