package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// lineLog is a log of refusals, and what it has written.
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

// line is one of the log.
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

// lines ends the log, and returns what it has.
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

// refused is a request that never fits.
func neverFits(client string) *policy.Request {
	r := askFrom(client, "/")
	r.Cost = 1000
	return r
}

func TestRefusalLine(t *testing.T) {
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
		t.Fatalf("there are %d lines:\n%s", len(all), &l.out)
	}
	if got := all[0]; got.Msg != "would refuse" || got.Level != "INFO" || got.Rule != "watched" || got.Limit != "1/hour burst 1" || got.Because != "limit" || *got.Wait < 3590 || *got.Wait > 3600 {
		t.Errorf("the second request: %+v", got)
	}
	if got := all[1]; got.Msg != "refused" || got.Rule != "api" || got.Limit != "2/minute burst 2" || got.LimitName != "api-1m" || got.From != "rule" ||
		got.Because != "limit" || got.Subject != "192.0.2.7" || *got.Wait < 25 || *got.Wait > 30 || got.Address != "192.0.2.7" || got.Door != "gateway" ||
		got.Path != "/orders/7" || got.Host != "api.example.com" || got.ID != "req-1" || got.Trace != "4bf92f3577b34da6a3ce929d0e0e4736" || got.LeftOut != 0 {
		t.Errorf("the third request: %+v", got)
	}
	if got := all[2]; got.Msg != "would refuse" || got.Rule != "watched" {
		t.Errorf("the third request: %+v", got)
	}
}

// away is a store that does not answer.
type awayStore struct{ sluice.Store }

func (awayStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("away")
}

func TestRefusalBecause(t *testing.T) {
	for _, c := range []struct {
		name, rules string
		store       sluice.Store
		want        logLine
	}{
		{"limit", `rules: [{name: r, limit: 1/day}]`, memory.New(), logLine{Rule: "r", Because: "limit", Limit: "1/day burst 1", Subject: "everybody"}},
		{"penalty", `rules: [{name: r, limit: 1/day, penalty: 1h}]`, memory.New(), logLine{Rule: "r", Because: "penalty", Limit: "1/day burst 1", Subject: "everybody"}},
		{"block", `rules: [{name: r, clients: [192.0.2.0/24], block: true}]`, memory.New(), logLine{Rule: "r", Because: "block"}},
		{"store", `rules: [{name: r, limit: 1/day, on_error: deny}]`, awayStore{memory.New()}, logLine{Rule: "r", Because: "store", Limit: "1/day burst 1", Subject: "everybody"}},
		{"malformed", `rules: [{name: r, limit: 99/day, key: [api_key], missing: refuse}]`, memory.New(), logLine{Because: "malformed", Missing: "api_key"}},
	} {
		l := logRefusals(t, c.store, c.rules)
		for range 3 {
			l.Decide(t.Context(), askFrom("192.0.2.7", "/"))
		}
		all := l.lines(t)
		if len(all) == 0 {
			t.Errorf("%s: nothing is told", c.name)
			continue
		}
		got := all[len(all)-1]
		if got.Msg != "refused" || got.Rule != c.want.Rule || got.Because != c.want.Because || got.Limit != c.want.Limit || got.Subject != c.want.Subject || got.Missing != c.want.Missing {
			t.Errorf("%s: %s", c.name, &l.out)
		}
	}
}

func TestRefusalPardoned(t *testing.T) {
	l := logRefusals(t, memory.New(), `rules: [{name: r, limit: 99/day, key: [api_key], missing: refuse, shadow: true}, {name: all, limit: 9/day}]`)
	l.Decide(t.Context(), askFrom("192.0.2.7", "/"))
	all := l.lines(t)
	if len(all) != 1 || all[0].Msg != "would refuse" || all[0].Because != "malformed" || all[0].Missing != "api_key" || all[0].Rule != "" {
		t.Errorf("%s", &l.out)
	}
}

// One subject has the lines that are promised, whatever comes in between, and begins anew.
func TestRefusalsOfSubject(t *testing.T) {
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
			case one.Msg != "refused":
				got = append(got, fmt.Sprint(one.ByRule))
			}
		}
		// The 1st to 4th, 8th, 16th, 32nd and 64th; after an hour the 35 left of the other, whose first
		// passed; then 36 and the one; the next.
		if want := "0 0 0 0 3 7 15 31 map[r:35] map[r:37] 0"; !strings.HasPrefix(strings.Join(got, " "), want) {
			t.Errorf("left out: %v, and not %s", got, want)
		}
	})
}

// An attack by any number of subjects has as many lines as are promised, and each refusal is told.
func TestRefusalsFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rules, rounds, perRound = 20, 50, 2000
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
					r.Peer = netip.MustParseAddr("192.0.2.7") // who is at it all the time
				}
				l.Decide(t.Context(), r)
				n++
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		var lines, told uint64
		perRule := map[string]int{}
		for _, one := range l.lines(t) {
			if one.Msg == "refused" {
				lines++
				perRule[one.Rule]++
				told += 1 + one.LeftOut
				continue
			}
			sum := one.Others
			for _, v := range one.ByRule {
				sum += v
			}
			if sum != one.Refusals {
				t.Errorf("%d by rule, and %d in all", sum, one.Refusals)
			}
			told += one.Refusals
		}
		if told != rounds*perRound {
			t.Errorf("%d refusals are told of %d", told, rounds*perRound)
		}
		if lines > allBurst+allRate*rounds || lines < allBurst {
			t.Errorf("there are %d lines", lines)
		}
		for rule, n := range perRule {
			if n > ruleBurst+ruleRate*rounds {
				t.Errorf("%s has %d lines", rule, n)
			}
		}
	})
}

// Who writes to a pipe that nobody reads keeps nobody, and what was left out is told later.
func TestRefusalsBlocked(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	rules.WriteString("rules:\n")
	for i := range 10 {
		fmt.Fprintf(&rules, "- {name: %s%d, limit: 1/day, key: [client_ip]}\n", strings.Repeat("r", 60), i)
	}
	e := refusalEngine(t, memory.New(), rules.String())
	blocked := make(chan struct{})
	fill := slog.New(slog.NewJSONHandler(in, nil))
	full := make(chan struct{})
	go func() { // fills the pipe
		defer close(blocked)
		for i := range 1000 {
			if i == 30 {
				close(full)
			}
			fill.Info(strings.Repeat("x", 1000))
		}
	}()
	<-full
	h := &gateHandler{Handler: slog.NewJSONHandler(in, nil)}
	stop := LogRefusals(e, slog.New(h))
	for i := range 20_000 {
		e.Decide(t.Context(), neverFits(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()))
	}
	stop() // which does not wait for ever
	var all bytes.Buffer
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(&all, out) }()
	<-blocked
	h.ended(t, "refusals left out of the log")
	in.Close()
	<-read
	var told uint64
	for text := range strings.Lines(all.String()) {
		var one logLine
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		if one.Msg == "refused" {
			told += 1 + one.LeftOut
		}
		told += one.Refusals
	}
	if told != 200_000 {
		t.Errorf("%d are told of 200,000", told)
	}
}

// gate lets a test wait for a record that has been written.
type gateHandler struct {
	slog.Handler
	mu   sync.Mutex
	seen []string
}

func (g *gateHandler) Handle(ctx context.Context, r slog.Record) error {
	err := g.Handler.Handle(ctx, r)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, r.Message)
	return err
}

func (g *gateHandler) ended(t *testing.T, message string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		done := len(g.seen) > 0 && g.seen[len(g.seen)-1] == message
		g.mu.Unlock()
		if done {
			return
		}
	}
	t.Fatalf("%q was not written", message)
}

func TestRefusalsAllocate(t *testing.T) {
	l := logRefusals(t, memory.New(), `rules: [{name: r, limit: 1/day, key: [client_ip]}, {name: s, limit: 1/day, key: [header:X-User], shadow: true}]`)
	quiet := refusalEngine(t, memory.New(), `rules: [{name: r, limit: 1/day, key: [client_ip]}, {name: s, limit: 1/day, key: [header:X-User], shadow: true}]`)
	LogRefusals(quiet, slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn})))
	r := neverFits("192.0.2.7")
	var d policy.Decision
	for range 1<<12 + 1 { // the next line is far away
		l.DecideInto(t.Context(), r, &d)
	}
	for name, e := range map[string]*policy.Engine{"left out": l.Engine, "above the level": quiet} {
		if n := fewestAllocations(func() { e.DecideInto(t.Context(), r, &d) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// fewestAllocations of many calls: the race detector makes pools forget now and then.
func fewestAllocations(f func()) float64 {
	n := testing.AllocsPerRun(1, f)
	for range 100 {
		n = min(n, testing.AllocsPerRun(1, f))
	}
	return n
}

// Whom a rule does not show whole is not told by the address either.
func TestRefusalsHideAddress(t *testing.T) {
	for _, c := range []struct{ rule, client, shown string }{
		{"key: [client_ip]", "192.0.2.7", "192.0.2.7"},
		{"key: [client_ip]", "2001:db8:1:2::9", "2001:db8:1:2::9"},
		{"key: [client_ip], show_key: hash", "192.0.2.7", ""},
		{"key: [client_ip], show_key: short", "192.0.2.7", ""},
		{"key: [client_ip, method], show_key: hash", "2001:db8:1:2::9", ""},
		{"key: [method], show_key: hash", "192.0.2.7", "192.0.2.7"},
	} {
		l := logRefusals(t, memory.New(), "rules: [{name: r, limit: 1/day, "+c.rule+"}]")
		l.Decide(t.Context(), neverFits(c.client))
		if all := l.lines(t); len(all) != 1 || all[0].Address != c.shown || strings.Contains(l.out.String(), c.client) != (c.shown != "") {
			t.Errorf("%s: %s", c.rule, &l.out)
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

// checkLines checks that what came out has whole lines of printable text.
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
	if err := json.Unmarshal(asJSON.Bytes(), &one); err != nil || one["msg"] != "refused" && one["msg"] != "would refuse" {
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

func TestRefusalsHostile(t *testing.T) {
	for _, text := range hostileTexts {
		checkHostile(t, text)
	}
}

func FuzzRefusals(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkHostile(t, text) })
}

func TestTraceID(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for value, want := range map[string]string{
		"00-" + trace + "-" + parent + "-01":                        trace,
		"00-" + trace + "-" + parent + "-00":                        trace,
		"cc-" + trace + "-" + parent + "-01":                        trace,
		"cc-" + trace + "-" + parent + "-01-what-the-future-brings": trace,
		"cc-" + trace + "-" + parent + "-01.what":                   "",
		"00-" + trace + "-" + parent + "-01-x":                      "",
		"ff-" + trace + "-" + parent + "-01":                        "",
		"00-" + strings.ToUpper(trace) + "-" + parent + "-01":       "",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01":      "",
		"00-" + trace + "-0000000000000000-01":                      "",
		"00-" + trace + "-" + parent + "-0":                         "",
		"00-" + trace + "-" + parent + "-0g":                        "",
		"00-" + trace + "_" + parent + "-01":                        "",
		"":                                                          "",
		strings.Repeat("-", 55):                                     "",
		" 00-" + trace + "-" + parent + "-01":                       "",
		"00-" + trace[:30] + "\x1b[-" + parent + "-01":              "",
	} {
		if got := traceID([]string{value}); got != want {
			t.Errorf("%q names %q, and not %q", value, got, want)
		}
	}
	good := "00-" + trace + "-" + parent + "-01"
	if traceID(nil) != "" || traceID([]string{good, good}) != "" {
		t.Error("there has to be one")
	}
}
