package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// lineLog is an engine with a log of denials, and the text of the log.
type lineLog struct {
	*policy.Engine
	out  logBuffer
	stop func()
}

type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func logRefusals(t testing.TB, store sluice.Store, rules string) *lineLog {
	t.Helper()
	l := &lineLog{Engine: refusalEngine(t, store, rules)}
	l.stop = LogRefusals(l.Engine, slog.New(slog.NewJSONHandler(&l.out, nil)))
	t.Cleanup(l.stop)
	return l
}

func refusalEngine(t testing.TB, store sluice.Store, rules string) *policy.Engine {
	t.Helper()
	p, err := policyfile.Parse("policy.yaml", []byte("version: 1\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(store, p)
}

// logLine is a line of the log.
type logLine struct {
	Time                                            time.Time
	Level, Msg, Rule, Limit, From, Because, Missing string
	LimitName                                       string `json:"limit_name"`
	Subject                                         string
	Wait                                            *int64
	Address, Door, Method, Path, Host               string
	ID                                              string `json:"request_id"`
	Trace                                           string `json:"trace_id"`
	LeftOut                                         uint64 `json:"left_out"`
	Refusals, Unwritten                             uint64
	ByRule                                          map[string]uint64 `json:"by_rule"`
	Others                                          uint64            `json:"of_other_rules"`
}

// lines stops the log and returns its lines.
func (l *lineLog) lines(t testing.TB) (all []logLine) {
	t.Helper()
	l.stop()
	for text := range strings.Lines(l.out.String()) {
		var one logLine
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&one); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		all = append(all, one)
	}
	return all
}

func askFrom(client, path string) *policy.Request {
	return &policy.Request{Path: path, Host: "api.example.com", Peer: netip.MustParseAddr(client), Header: http.Header{}, Door: "gateway"}
}

// neverFits returns a request with a cost above its limit.
func neverFits(client string) *policy.Request {
	r := askFrom(client, "/")
	r.Cost = 1000
	return r
}

// unavailableStore is a store that fails each Take.
type unavailableStore struct{ sluice.Store }

func (unavailableStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("unavailable")
}

// A line describes the request and the reason of its denial, but does not contain its query.
func TestRefusalLine(t *testing.T) {
	t.Parallel()
	l := logRefusals(t, memory.New(), `
rules:
  - {name: api, limits: [2/minute, 100/day], key: [client_ip]}
  - {name: watched, limit: 1/hour, shadow: true}`)
	r := askFrom("192.0.2.7", "/orders/7")
	r.RawQuery = "token=secret"
	r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	r.Header.Set("X-Request-ID", "req-1")
	for range 3 {
		l.Decide(t.Context(), r)
	}
	r.Mode = policy.Peek
	l.Decide(t.Context(), r)
	all := l.lines(t)
	if len(all) != 3 || strings.Contains(l.out.String(), "secret") {
		t.Fatalf("%d lines, want 3:\n%s", len(all), &l.out)
	}
	if w := *all[0].Wait; w < 3590 || w > 3600 {
		t.Errorf("the second request waits %d s", w)
	}
	if w := *all[1].Wait; w < 25 || w > 30 {
		t.Errorf("the third request waits %d s", w)
	}
	request := logLine{
		Level: "INFO", Because: "limit", From: "rule", Address: "192.0.2.7", Door: "gateway", Path: "/orders/7", Host: "api.example.com",
		ID: "req-1", Trace: "4bf92f3577b34da6a3ce929d0e0e4736",
	}
	watched, api := request, request
	watched.Msg, watched.Rule, watched.Limit, watched.Subject = "would deny", "watched", "1/hour burst 1", "everybody"
	api.Msg, api.Rule, api.Limit, api.LimitName, api.Subject = "denied", "api", "2/minute burst 2", "api-1m", "192.0.2.7"
	for i, want := range []logLine{watched, api, watched} {
		if all[i].Time, all[i].Wait = (time.Time{}), nil; !reflect.DeepEqual(all[i], want) {
			t.Errorf("line %d is %+v, want %+v", i, all[i], want)
		}
	}
}

// A line has the reason of the denial, the rule, the limit and the address, unless a rule hides the address.
func TestRefusalBecause(t *testing.T) {
	t.Parallel()
	const known, six = "192.0.2.7", "2001:db8:1:2::9"
	limited := func(because, address string) logLine {
		return logLine{Rule: "r", Because: because, Limit: "1/day burst 1", Address: address}
	}
	for _, c := range []struct {
		rule  string
		store sluice.Store
		want  logLine
	}{
		{"{name: r, limit: 1/day}", memory.New(), limited("limit", known)},
		{"{name: r, limit: 1/day, penalty: 1h}", memory.New(), limited("penalty", known)},
		{"{name: r, clients: [192.0.2.0/24], block: true}", memory.New(), logLine{Rule: "r", Because: "block", Address: known}},
		{"{name: r, limit: 1/day, on_error: deny}", unavailableStore{}, limited("store", known)},
		{"{name: r, limit: 99/day, key: [api_key], missing: refuse}", memory.New(), logLine{Because: "malformed", Missing: "api_key", Address: known}},
		{"{name: r, limit: 99/day, key: [api_key], missing: refuse, shadow: true}", memory.New(),
			logLine{Msg: "would deny", Because: "malformed", Missing: "api_key", Address: known}},
		{"{name: r, limit: 1/day}, {name: s, limit: 99/day, key: [api_key], missing: refuse, shadow: true}", memory.New(), limited("limit", known)},
		{"{name: r, limit: 1/day, key: [method], show_key: hash}", memory.New(), limited("limit", known)},
		{"{name: r, limit: 1/day, key: [client_ip], show_key: hash}", memory.New(), limited("limit", "")},
		{"{name: r, limit: 1/day, key: [client_ip]} #" + six, memory.New(), limited("limit", six)},
		{"{name: r, limit: 1/day, key: [client_ip, method], show_key: hash} #" + six, memory.New(), limited("limit", "")},
		{"{name: r, limit: 1/day, key: [client_ip], show_key: short}", memory.New(), limited("limit", "")},
	} {
		rule, client, _ := strings.Cut(c.rule, " #")
		client = cmp.Or(client, known)
		l := logRefusals(t, c.store, "rules: ["+rule+"]")
		for range 3 {
			l.Decide(t.Context(), askFrom(client, "/"))
		}
		all := l.lines(t)
		if len(all) == 0 {
			t.Errorf("%s: nothing is logged", c.rule)
			continue
		}
		got := all[len(all)-1]
		got = logLine{Msg: got.Msg, Rule: got.Rule, Because: got.Because, Limit: got.Limit, Missing: got.Missing, Address: got.Address}
		if c.want.Msg = cmp.Or(c.want.Msg, "denied"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %s", c.rule, &l.out)
		}
		if strings.Contains(l.out.String(), client) != (c.want.Address != "") {
			t.Errorf("%s: want the address unless it is hidden: %s", c.rule, &l.out)
		}
	}
}

// One subject gets the documented lines, whatever other denials come in between, and starts again after an hour without
// denials.
func TestRefusalsOfSubject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := logRefusals(t, memory.New(), `rules: [{name: r, limit: 1/day, key: [client_ip]}]`)
		for range 100 {
			l.Decide(t.Context(), neverFits("192.0.2.7"))
			l.Decide(t.Context(), askFrom("192.0.2.8", "/"))
		}
		time.Sleep(59 * time.Minute)
		l.Decide(t.Context(), neverFits("192.0.2.7"))
		time.Sleep(2 * time.Hour)
		l.Decide(t.Context(), neverFits("192.0.2.7"))
		var got []string
		for _, one := range l.lines(t) {
			switch {
			case one.Subject == "192.0.2.7":
				got = append(got, fmt.Sprint(one.LeftOut))
			case one.Msg != "denied":
				got = append(got, fmt.Sprint(one.ByRule))
			}
		}
		// The 1st to 4th, 8th, 16th, 32nd and 64th denial are logged. After an hour, a summary has the 35 other denials
		// of 192.0.2.8 (its first request was allowed). The next summary has the 36 of 192.0.2.7 and the one after 59
		// minutes. Its last denial is logged again.
		if want := "0 0 0 0 3 7 15 31 map[r:35] map[r:37] 0"; !strings.HasPrefix(strings.Join(got, " "), want) {
			t.Errorf("left out: %v, want %s", got, want)
		}
	})
}

// An attack by any number of subjects writes a bounded number of lines, which count every denial.
func TestRefusalsFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rules, rounds, perRound = 20, 20, 1000
		var doc strings.Builder
		doc.WriteString("rules:\n")
		for i := range rules {
			fmt.Fprintf(&doc, "- {name: r%d, limit: 1/day, key: [client_ip], match: /%d}\n", i, i)
		}
		l := logRefusals(t, memory.New(), doc.String())
		n := 0
		for range rounds {
			for range perRound {
				r := neverFits(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String())
				r.Path = fmt.Sprintf("/%d", n%rules)
				if n%10 == 0 {
					r.Peer = netip.MustParseAddr("192.0.2.7") // a subject that is denied all the time
				}
				l.Decide(t.Context(), r)
				n++
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		var lines, counted uint64
		perRule := map[string]int{}
		for _, one := range l.lines(t) {
			if one.Msg == "denied" {
				lines++
				perRule[one.Rule]++
				counted += 1 + one.LeftOut
				continue
			}
			sum := one.Others
			for _, v := range one.ByRule {
				sum += v
			}
			if sum != one.Refusals {
				t.Errorf("%d denials by rule, and %d in total", sum, one.Refusals)
			}
			counted += one.Refusals
		}
		if counted != rounds*perRound {
			t.Errorf("the log counts %d of %d denials", counted, rounds*perRound)
		}
		if lines > allBurst+allRate*rounds || lines < allBurst {
			t.Errorf("the log has %d lines", lines)
		}
		for rule, n := range perRule {
			if n > ruleBurst+ruleRate*rounds {
				t.Errorf("%s has %d lines", rule, n)
			}
		}
	})
}

// stuck is a writer that blocks until free is closed.
type stuck struct {
	logBuffer
	free chan struct{}
}

func (w *stuck) Write(p []byte) (int, error) {
	<-w.free
	return w.logBuffer.Write(p)
}

// A blocked log delays no decision, and later it counts the denials that were not logged.
func TestRefusalsBlocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rules strings.Builder
		rules.WriteString("rules:\n")
		for i := range 10 {
			fmt.Fprintf(&rules, "- {name: r%d, limit: 1/day, key: [client_ip]}\n", i)
		}
		e := refusalEngine(t, memory.New(), rules.String())
		out := &stuck{free: make(chan struct{})}
		stop := LogRefusals(e, slog.New(slog.NewJSONHandler(out, nil)))
		for i := range 5_000 {
			e.Decide(t.Context(), neverFits(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()))
		}
		began := time.Now()
		time.AfterFunc(time.Hour, func() { close(out.free) })
		if stop(); time.Since(began) > time.Minute {
			t.Errorf("stop waited %v", time.Since(began))
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		var counted uint64
		for text := range strings.Lines(out.String()) {
			var one logLine
			if err := json.Unmarshal([]byte(text), &one); err != nil {
				t.Fatal(err)
			}
			if one.Msg == "denied" {
				counted += 1 + one.LeftOut
			}
			counted += one.Refusals
		}
		if counted != 50_000 {
			t.Errorf("the log counts %d of 50,000 denials", counted)
		}
	})
}

func TestRefusalsAllocate(t *testing.T) {
	const rules = `rules: [{name: r, limit: 1/day, key: [client_ip]}, {name: s, limit: 1/day, key: [header:X-User], shadow: true}]`
	l := logRefusals(t, memory.New(), rules)
	quiet := refusalEngine(t, memory.New(), rules)
	LogRefusals(quiet, slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn})))
	r := neverFits("192.0.2.7")
	var d policy.Decision
	for range 1<<12 + 1 { // the next line comes after thousands of denials
		l.DecideInto(t.Context(), r, &d)
	}
	for name, e := range map[string]*policy.Engine{"left out": l.Engine, "above the level": quiet} {
		if n := testkit.Allocations(func() { e.DecideInto(t.Context(), r, &d) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func hostileRequest(text string) *policy.Request {
	r := askFrom("192.0.2.7", text)
	r.Method, r.Host, r.ID = text, text, text
	r.Header = http.Header{"X-Request-Id": {text}, "Traceparent": {text}, "X-User": {text}}
	r.Attributes = map[string]string{"a": text}
	r.Cost = 1000
	return r
}

const hostileRules = `rules: [{name: r, limit: 1/day, key: [header:X-User, attr:a], ambiguous: charge}]`

// checkLogLines checks that out consists of the wanted number of whole lines of printable text.
func checkLogLines(t testing.TB, out string, want int) {
	t.Helper()
	if n := strings.Count(out, "\n"); n != want || !strings.HasSuffix(out, "\n") || !utf8.ValidString(out) {
		t.Fatalf("%d lines of %d: %q", n, want, out)
	}
	for _, r := range strings.ReplaceAll(out, "\n", "") {
		if r < ' ' || r >= 0x7f && r < 0xa0 || unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			t.Fatalf("%U in %q", r, out)
		}
	}
}

func checkHostile(t testing.TB, text string) {
	t.Helper()
	var asJSON, asText logBuffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&asJSON, nil), slog.NewTextHandler(&asText, nil)} {
		e := refusalEngine(t, memory.New(), hostileRules)
		stop := LogRefusals(e, slog.New(h))
		e.Decide(t.Context(), hostileRequest(text))
		stop()
	}
	checkLogLines(t, asJSON.String(), 1)
	checkLogLines(t, asText.String(), 1)
	var one map[string]any
	if err := json.Unmarshal(asJSON.Bytes(), &one); err != nil || one["msg"] != "denied" && one["msg"] != "would deny" {
		t.Fatalf("%v: %s", err, &asJSON)
	}
	if asJSON.Len() > 2048 || asText.Len() > 2048 {
		t.Fatalf("lines of %d and %d bytes: %s", asJSON.Len(), asText.Len(), &asText)
	}
}

var hostileTexts = []string{
	"", "plain", "a\r\n{\"msg\":\"forged\"}", "\x1b]0;title\a\x1b[2J", "\u009b31mred", "\u202edesrever", "a\u2028b\u2029c", "\xff\xfe\x80", "\x00", "\"\\\"", "a=b c=d",
	strings.Repeat("\"", 5000), strings.Repeat("\\", 5000), strings.Repeat("\xff", 5000), strings.Repeat("\u0301", 5000), strings.Repeat("字", 5000), strings.Repeat("\x1b", 5000), "\u200b\ufeff", "\u3164",
}

func FuzzRefusals(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkHostile(t, text) })
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	const good = "00-" + trace + "-" + parent + "-01"
	for _, value := range []string{good, good[:54] + "0", "cc" + good[2:], "cc" + good[2:] + "-what-the-future-brings"} {
		if got := traceID([]string{value}); got != trace {
			t.Errorf("the trace of %q is %q", value, got)
		}
	}
	for _, value := range []string{
		"", strings.Repeat("-", 55), " " + good, good + "-x", good[:54], good[:54] + "g", "ff" + good[2:], "cc" + good[2:] + ".what",
		strings.ToUpper(good), "00-" + strings.Repeat("0", 32) + good[35:], "00-" + trace + "-0000000000000000-01",
		"00-" + trace + "_" + parent + "-01", "00-" + trace[:30] + "\x1b[-" + parent + "-01",
	} {
		if got := traceID([]string{value}); got != "" {
			t.Errorf("the trace of %q is %q", value, got)
		}
	}
	if traceID(nil) != "" || traceID([]string{good, good}) != "" {
		t.Error("want no trace without exactly one header")
	}
}
