package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
)

// TestScripts plays testdata/scripts: each section has a policy, a line "---", and steps, in virtual time from
// 2000-01-01 on. testdata/scripts/README describes the language.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			for _, section := range testkit.Sections(t, file) {
				t.Run(section.Name, func(t *testing.T) {
					for _, algorithm := range algorithmsOf(section) {
						synctest.Test(t, func(t *testing.T) { newScript(t, section, algorithm).run() })
					}
				})
			}
		})
	}
}

// script is the state of a section: an engine, and the results of the steps so far.
type script struct {
	*testing.T
	engine    *Engine
	store     *testStore
	algorithm string // in place of ALGORITHM
	lines     []string
	first     int                 // the number of lines[0] in the file
	at        int                 // the line of the step
	decisions map[string]Decision // by name
	places    map[string]string
	subjects  map[string]*Subject
	seen      *observedRequest // the last observation
	reused    Decision         // reused for each decision, to check that nothing of the last one is left
}

// observedRequest has the texts of an observation. The slices have one entry for each result.
type observedRequest struct {
	keys, sent, shown   []string
	pardoned, exempting string
	tier, customer      string
}

// algorithmsOf returns the algorithms in place of ALGORITHM.
func algorithmsOf(section testkit.Section) []string {
	if strings.Contains(section.Text, "ALGORITHM") {
		return exactAlgorithms
	}
	return []string{""}
}

func newScript(t *testing.T, section testkit.Section, algorithm string) *script {
	t.Helper()
	section.Text = strings.ReplaceAll(section.Text, "ALGORITHM", algorithm)
	rules, steps, found := strings.Cut(section.Text, "\n---\n")
	if !found {
		t.Fatal("the section has no line ---")
	}
	s := &script{
		T: t, store: &testStore{Store: memory.New(), record: true}, algorithm: algorithm, lines: strings.Split(steps, "\n"),
		first:     section.Line + strings.Count(rules, "\n") + 2,
		decisions: make(map[string]Decision), places: make(map[string]string), subjects: make(map[string]*Subject),
	}
	s.use(NewEngine(s.store, parse(t, rules)))
	return s
}

// use sets the engine of the script, and observes it.
func (s *script) use(e *Engine) {
	s.engine = e
	e.Observe(func(_ context.Context, o *Observation) {
		s.seen = &observedRequest{pardoned: o.Pardoned(), exempting: o.Exempting()}
		for i := range o.Decision.Results {
			s.seen.keys = append(s.seen.keys, strings.Clone(o.Key(i)))
			s.seen.sent = append(s.seen.sent, strings.Clone(o.Sent(i)))
			s.seen.shown = append(s.seen.shown, o.Shown(i))
		}
		tier, customer, known := o.Tier()
		if s.seen.customer, s.seen.tier = strings.Clone(customer), strings.Clone(tier); !known {
			s.seen.tier = "unknown"
		}
	})
}

// errorf reports a failure at the line of the step.
func (s *script) errorf(format string, args ...any) {
	s.Helper()
	s.Errorf("line %d: %s %s\n%s", s.first+s.at, strings.TrimSpace(s.lines[s.at]), s.algorithm, fmt.Sprintf(format, args...))
}

func (s *script) run() {
	for i := 0; i < len(s.lines); {
		s.at = i
		line := testkit.Words(s.lines[i])
		var block []string
		for i++; i < len(s.lines) && (strings.HasPrefix(s.lines[i], "  ") || s.lines[i] == "" && len(block) > 0); i++ {
			block = append(block, strings.TrimPrefix(s.lines[i], "  "))
		}
		if len(line) == 0 {
			continue
		}
		a := s.line(line)
		if texts, found := policyTexts[line[0]]; found {
			if got := texts(s.engine.Policy(), parse(s.T, cmp.Or(strings.Join(block, "\n"), "rules: []"))); !slices.Equal(got, a.want) {
				s.errorf("got %q", got)
			}
			continue
		}
		if step, found := scriptSteps[line[0]]; found {
			step(s, a.request[1:], a.want, block)
			continue
		}
		for _, more := range block {
			a.want = append(a.want, testkit.Words(more)...)
		}
		s.ask(a)
	}
}

// scriptLine is "[NAME =] [N x] REQUEST [-> WANT]".
type scriptLine struct {
	name          string
	times         int
	request, want []string
}

func (s *script) line(line []string) (a scriptLine) {
	a.times = 1
	if at := slices.Index(line, "->"); at >= 0 {
		line, a.want = line[:at], line[at+1:]
	}
	if len(line) > 2 && line[1] == "=" {
		a.name, line = line[0], line[2:]
	}
	if len(line) > 2 && line[1] == "x" {
		a.times, line = must(strconv.Atoi(line[0])), line[2:]
	}
	a.request = line
	return a
}

// ask decides about a request.
func (s *script) ask(a scriptLine) {
	passed := 0
	for range a.times {
		d := s.decide(s.request(a.request), a.want)
		if a.name != "" {
			s.decisions[a.name] = d
		}
		if d.Allowed {
			passed++
		}
	}
	if count := s.passes(a.want); count >= 0 && passed != count {
		s.errorf("%d of %d pass", passed, a.times)
	}
}

// passes returns the number of requests that have to pass by the expectation "N pass", or -1 for another expectation.
func (s *script) passes(want []string) int {
	if len(want) == 2 && want[1] == "pass" {
		return must(strconv.Atoi(want[0]))
	}
	return -1
}

// decide compares Explain with Decide, and the decision with the expectation.
func (s *script) decide(r *testRequest, want []string) Decision {
	would := s.engine.Explain(s.Context(), &r.Request)
	s.seen, r.reads = nil, 0
	s.store.set(s.store.err, s.store.closedLocks)
	s.engine.DecideInto(s.Context(), &r.Request, &s.reused)
	d, is := s.reused.Clone(), would.Decision
	if verdictOf(&is) != verdictOf(&d) || is.Degraded != d.Degraded || is.Unavailable != d.Unavailable {
		if r.Mode == Charge && r.ID == "" && r.Subject == nil {
			s.errorf("explained as %+v, decided %+v", is, d)
		}
	}
	if is.Blocked == "" {
		var found []Result
		for _, rule := range would.Rules {
			found = append(found, rule.Results...)
		}
		if counted := slices.DeleteFunc(slices.Clone(is.Results), func(r Result) bool { return r.Plan == nil }); !slices.Equal(found, counted) {
			s.errorf("rules explain %+v, and the decision %+v", found, counted)
		}
	}
	if d.Blocked != "" && s.store.keys() != nil {
		s.errorf("a blocked request is charged: %v", s.store.keys())
	}
	if s.passes(want) < 0 && want[0] != "any" {
		s.check(&d, r, &would, want)
	}
	return d
}

// check compares a decision with words: its verdict first, then flags, results as NAME:REMAINING, and FIELD=VALUE.
func (s *script) check(d *Decision, r *testRequest, would *Trace, want []string) {
	if len(want) == 0 || want[0] != verdictOf(d) {
		s.errorf("got %s", s.describe(d))
		return
	}
	flags := map[string]bool{"repeated": d.Repeated, "degraded": d.Degraded, "unavailable": d.Unavailable, "held": d.Held()}
	delay, waits := time.Duration(0), false
	of := view{s, d, r, would, cmp.Or(s.seen, new(observedRequest))}
	var results []string
	for _, word := range want[1:] {
		if is, known := flags[word]; known {
			if delete(flags, word); !is {
				s.errorf("the decision is not %s: %s", word, s.describe(d))
			}
			continue
		}
		field, value, found := strings.Cut(word, "=")
		switch {
		case !found:
			results = append(results, word)
		case field == "delay":
			delay = durationOf(value)
		default:
			waits = waits || field == "wait"
			if got := of.field(field); got != value {
				s.errorf("%s is %q, want %q: %s", field, got, value, s.describe(d))
			}
		}
	}
	for flag, is := range flags {
		if is {
			s.errorf("the decision is %s: %s", flag, s.describe(d))
		}
	}
	if got := resultsOf(d); results != nil && !slices.Equal(got, results) && !(len(got) == 0 && slices.Equal(results, []string{"none"})) {
		s.errorf("got %s", s.describe(d))
	}
	if d.Delay != delay || !waits && (d.RetryAfter > 0) != (verdictOf(d) == "refused" || d.Blocked != "") {
		s.errorf("the delay is %v, the wait %v: %s", d.Delay, d.RetryAfter, s.describe(d))
	}
}

// verdictOf returns the verdict of a decision as a word.
func verdictOf(d *Decision) string {
	switch {
	case d.Exempt && d.Allowed:
		return "exempt"
	case d.Blocked != "" && !d.Allowed:
		return "blocked=" + d.Blocked
	case d.Missing != "" && !d.Allowed:
		return "lacks=" + d.Missing
	case d.Allowed:
		return "allowed"
	}
	return "refused"
}

// resultsOf returns the remaining units of each limit, or "refused", with the name of the limit that clients see.
func resultsOf(d *Decision) (all []string) {
	for i := range d.Results {
		word := fmt.Sprint(d.Results[i].Remaining)
		if !d.Results[i].Allowed {
			word = "refused"
		}
		all = append(all, nameOf(&d.Results[i])+":"+word)
	}
	return all
}

func nameOf(r *Result) string {
	if r.Name != "" {
		return r.Name
	}
	return r.Rule
}

func (s *script) describe(d *Decision) string {
	return fmt.Sprintf("%s %s wait=%v delay=%v repeated %v, degraded %v, unavailable %v, held %v, unsettled %v",
		verdictOf(d), resultsOf(d), d.RetryAfter, d.Delay, d.Repeated, d.Degraded, d.Unavailable, d.Held(), d.Unsettled())
}

// view is a decision with its request, its explanation and its observation.
type view struct {
	*script
	d     *Decision
	r     *testRequest
	would *Trace
	seen  *observedRequest
}

// decisionFields are the fields of a decision by their names.
var decisionFields = map[string]func(v view) any{
	"wait":          func(v view) any { return waitOf(v.d.RetryAfter) },
	"unsettled":     func(v view) any { return v.d.Unsettled() },
	"reads":         func(v view) any { return v.r.reads },
	"tier":          func(v view) any { return v.would.Tier },
	"tier-from":     func(v view) any { return v.would.TierFrom },
	"over":          func(v view) any { return strings.Join(v.d.Over(), " ") },
	"form":          func(v view) any { return []string{"plain", "openai", "anthropic", "mcp"}[v.d.Form] },
	"would-form":    func(v view) any { return []string{"plain", "openai", "anthropic", "mcp"}[v.would.Decision.Form] },
	"call":          func(v view) any { return v.d.CallID },
	"tier-subject":  func(v view) any { return cmp.Or(v.would.TierSubject, new(TierSubject)).Subject },
	"client":        func(v view) any { return v.would.Client },
	"partition":     func(v view) any { return v.engine.Policy().Partition(&v.r.Request) },
	"observed-tier": func(v view) any { return v.seen.tier },
	"customer":      func(v view) any { return v.seen.customer },
	"pardoned":      func(v view) any { return v.seen.pardoned },
	"exempting":     func(v view) any { return v.seen.exempting },
	"charged":       func(v view) any { return strings.Join(v.store.keys(), " ") },
	"after": func(v view) any {
		after := v.would.After()
		return strings.Join(resultsOf(&after), " ")
	},
}

// traceFields are the fields of the explanation of a rule by their names.
var traceFields = map[string]func(r *RuleTrace) any{
	"why":      func(r *RuleTrace) any { return r.Why },
	"share":    func(r *RuleTrace) any { return r.Share },
	"enforced": func(r *RuleTrace) any { return r.Enforced },
	"watched":  func(r *RuleTrace) any { return r.Watched },
	"override": func(r *RuleTrace) any { return r.Override.Reason },
}

// field returns a field of a decision, of the explanation of a rule (FIELD.RULE), or of a result (NAME.FIELD).
func (v view) field(name string) string {
	kind, rule, _ := strings.Cut(name, ".")
	of := slices.IndexFunc(v.would.Rules, func(r RuleTrace) bool { return r.Rule == rule })
	if field, known := traceFields[kind]; known && of >= 0 {
		return fmt.Sprint(field(&v.would.Rules[of]))
	}
	if field, known := decisionFields[name]; known {
		return fmt.Sprint(field(v))
	}
	limit, name, _ := strings.Cut(name, ".")
	at := slices.IndexFunc(v.d.Results, func(r Result) bool { return nameOf(&r) == limit })
	if at < 0 {
		return "no such limit"
	}
	if texts, found := map[string][]string{"key": v.seen.keys, "sent": v.seen.sent, "shown": v.seen.shown}[name]; found {
		return texts[at]
	}
	return fieldOf(&v.d.Results[at], name)
}

// resultFields are the fields of a result by their names.
var resultFields = map[string]func(r *Result) any{
	"from":      func(r *Result) any { return r.From },
	"source":    func(r *Result) any { return r.Source },
	"rule":      func(r *Result) any { return r.Rule },
	"cost":      func(r *Result) any { return r.Cost },
	"owed":      func(r *Result) any { return r.Owed },
	"left":      func(r *Result) any { return r.Remaining },
	"locked":    func(r *Result) any { return r.Locked },
	"because":   func(r *Result) any { return r.Because() },
	"shadow":    func(r *Result) any { return r.Shadow },
	"unit":      func(r *Result) any { return r.Unit },
	"limit":     func(r *Result) any { return r.Plan.Limit },
	"capacity":  func(r *Result) any { return r.Plan.Capacity },
	"algorithm": func(r *Result) any { return r.Plan.Limit.Algorithm },
	"wait":      func(r *Result) any { return waitOf(r.RetryAfter) },
	"reset":     func(r *Result) any { return waitOf(r.ResetAfter) },
	"delay":     func(r *Result) any { return r.Delay },
}

func fieldOf(r *Result, name string) string {
	if field, known := resultFields[name]; known {
		return fmt.Sprint(field(r))
	}
	return "no such field"
}

// waitOf returns a wait in the form of the scripts: 2d, 1h30m, 40s or never.
func waitOf(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == sluice.Never:
		return "never"
	case d > 0 && d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	case d > 0 && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d > 0 && d%time.Minute == 0:
		return strings.TrimSuffix(d.String(), "0s")
	}
	return d.String()
}

func durationOf(text string) time.Duration {
	if days, found := strings.CutSuffix(text, "d"); found {
		return time.Duration(must(strconv.Atoi(days))) * 24 * time.Hour
	}
	return must(time.ParseDuration(text))
}

// testRequest is a request that counts the reads of its body.
type testRequest struct {
	Request
	reads int
	of    string // the name of the subject, for a request about one subject only
}

// request reads "[METHOD] [/PATH[?QUERY]] [FIELD=VALUE…]": names in capitals are headers.
func (s *script) request(words []string) *testRequest {
	s.Helper()
	r := requestOf(words)
	r.Subject = s.subjects[r.of]
	return r
}

func requestOf(words []string) *testRequest {
	r := &testRequest{Request: *request("", "", "192.0.2.1")}
	r.Attributes = make(map[string]string)
	for _, word := range words {
		name, value, found := strings.Cut(word, "=")
		attribute, isAttribute := strings.CutPrefix(name, "attr.")
		set, known := requestFields[name]
		switch {
		case strings.HasPrefix(word, "/"):
			r.Path, r.RawQuery, _ = strings.Cut(word, "?")
		case known:
			set(r, value)
		case isAttribute:
			r.Attributes[attribute] = value
		case found && name[0] >= 'A' && name[0] <= 'Z':
			r.Header.Add(name, value)
		case !found && word == strings.ToUpper(word):
			r.Method = word
		default:
			panic(fmt.Sprintf("a request has no %q", word))
		}
	}
	return r
}

// requestFields set the fields of a request by their names.
var requestFields = map[string]func(r *testRequest, value string){
	"method":    func(r *testRequest, value string) { r.Method = value },
	"host":      func(r *testRequest, value string) { r.Host = value },
	"path":      func(r *testRequest, value string) { r.Path = value },
	"query":     func(r *testRequest, value string) { r.RawQuery = value },
	"id":        func(r *testRequest, value string) { r.ID = value },
	"forwarded": func(r *testRequest, value string) { r.ForwardedHeader = value },
	"nopath":    func(r *testRequest, _ string) { r.NoPath = true },
	"peek":      func(r *testRequest, _ string) { r.Mode = Peek },
	"back":      func(r *testRequest, _ string) { r.Mode = GiveBack },
	"ends":      func(r *testRequest, _ string) { r.Ends = true },
	"of":        func(r *testRequest, value string) { r.of = value },
	"cost":      func(r *testRequest, value string) { r.Cost = must(strconv.ParseInt(value, 10, 64)) },
	"time":      func(r *testRequest, value string) { r.Time = must(time.Parse(time.RFC3339, value)) },
	"jwt":       func(r *testRequest, value string) { r.Header.Set("Authorization", "Bearer "+claims(value)) },
	"body":      func(r *testRequest, value string) { r.Body = r.counted(body(value)) },
	"broken-body": func(r *testRequest, _ string) {
		r.Body = r.counted(func(int64) ([]byte, error) { return nil, io.ErrUnexpectedEOF })
	},
	"no-memory": func(r *testRequest, _ string) {
		r.Body = r.counted(func(int64) ([]byte, error) { return nil, fmt.Errorf("too much: %w", ErrBodyMemory) })
	},
	"part-of-body": func(r *testRequest, _ string) {
		r.Body = r.counted(func(int64) ([]byte, error) { return nil, ErrBodyPart })
	},
	"from": func(r *testRequest, value string) {
		if r.Peer = (netip.Addr{}); value != "" {
			r.Peer = netip.MustParseAddr(value)
		}
	},
	"type": func(r *testRequest, value string) {
		r.Header.Add("Content-Type", cmp.Or(map[string]string{"form": formType, "json": jsonType}[value], value))
	},
}

// counted returns a body whose reads are counted.
func (r *testRequest) counted(read func(int64) ([]byte, error)) func(int64) ([]byte, error) {
	return func(limit int64) ([]byte, error) {
		r.reads++
		return read(limit)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// outcome reads the outcome of a request.
func (s *script) outcome(words []string) (o Outcome) {
	o.Header = http.Header{}
	var body *string
	interrupted := false
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "status":
			o.Status = must(strconv.Atoi(value))
		case "bytes":
			o.Bytes = int64(must(strconv.Atoi(value)))
		case "cost":
			o.Cost = int64(must(strconv.Atoi(value)))
		case "counts":
			o.Verdict = Counts
		case "counts-not":
			o.Verdict = CountsNot
		case "json":
			body = &value
		case "interrupted":
			interrupted = true
		case "none": // an unknown outcome
		default:
			o.Header.Add(name, value)
		}
	}
	if body != nil {
		o.Read = s.engine.Policy().ReadResponse(o.Header)
		io.WriteString(o.Read, *body)
		o.Read.Interrupted = interrupted
	}
	return o
}

// subject reads "RULE [PART=VALUE…]".
func (s *script) subject(words []string) *Subject {
	s.Helper()
	return subjectOf(s, s.engine, words[0], keyOf(words[1:]))
}

func keyOf(words []string) map[string]string {
	key := make(map[string]string)
	for _, word := range words {
		if part, value, found := strings.Cut(word, "="); found {
			key[part] = value
		}
	}
	return key
}

// err compares an error with "error TEXT…". Without this expectation, it expects no error.
func (s *script) err(err error, want []string) {
	s.Helper()
	switch {
	case len(want) == 0 && err != nil:
		s.errorf("%v", err)
	case len(want) > 0 && (err == nil || !strings.Contains(err.Error(), strings.Join(want[1:], " "))):
		s.errorf("got the error %v", err)
	}
}

// scriptSteps has the steps that are not requests. The parameter want has the words after "->", and block has the
// indented lines below.
var scriptSteps map[string]func(s *script, words, want, block []string)

func init() {
	scriptSteps = map[string]func(s *script, words, want, block []string){
		"wait": func(s *script, words, _, _ []string) { time.Sleep(durationOf(words[0])) },
		"until": func(s *script, words, _, _ []string) {
			time.Sleep(time.Until(must(time.Parse(time.RFC3339Nano, words[0]))))
		},
		"settle": func(s *script, words, _, _ []string) {
			s.engine.Settle(s.Context(), s.named(words[0]), s.outcome(words[1:]))
		},
		"settle-request": func(s *script, words, want, _ []string) {
			at := slices.Index(words, "by")
			s.err(s.engine.SettleRequest(s.Context(), &s.request(words[:at]).Request, s.outcome(words[at+1:])), want)
		},
		"refund":  func(s *script, words, _, _ []string) { s.engine.Refund(s.Context(), s.named(words[0])) },
		"release": func(s *script, words, _, _ []string) { s.engine.Release(s.Context(), s.named(words[0])) },
		"left":    (*script).left,
		"give": func(s *script, words, want, _ []string) { // N RULE KEY
			_, err := s.subject(words[1:]).Refund(s.Context(), int64(must(strconv.Atoi(words[0]))))
			s.err(err, want)
		},
		"reset": func(s *script, words, want, _ []string) { s.err(s.subject(words).Reset(s.Context()), want) },
		"block": func(s *script, words, want, _ []string) { // DURATION RULE KEY
			s.err(s.subject(words[1:]).Block(time.Now().Add(durationOf(words[0]))), want)
		},
		"unblock": func(s *script, words, _, _ []string) { s.subject(words).Unblock() },
		"subject": func(s *script, words, want, _ []string) { // NAME RULE KEY
			is, err := s.engine.Subject(words[1], keyOf(words[2:]))
			s.subjects[words[0]] = is
			s.err(err, want)
		},
		"swap": func(s *script, _, _, block []string) { s.engine.Swap(parse(s.T, strings.Join(block, "\n"))) },
		"store": func(s *script, words, _, _ []string) {
			if words[0] == "fallback" { // the fallback of a shared store that is unavailable
				unavailable := failover.Bulkhead(broken(errors.New("unavailable")), 0)
				shared := failover.New(unavailable, failover.Config{Logger: slog.New(slog.DiscardHandler)})
				s.Cleanup(func() { shared.Close() })
				s.use(NewEngine(shared, s.engine.Policy()))
			}
			s.store.set(map[string]error{"unavailable": errors.New("unavailable")}[words[0]], words[0] == "without-locks")
		},
		"subjects": func(s *script, words, want, _ []string) { // SUBJECT=TIER…: replaces the table
			var all []TierSubject
			for _, word := range words {
				subject, tier, _ := strings.Cut(word, "=")
				all = append(all, TierSubject{Subject: subject, Tier: tier})
			}
			s.err(s.engine.SwapSubjects(all), want)
		},
		"shadow-all": func(s *script, _, _, _ []string) { s.engine.ShadowAll() },
		"outcomes":   (*script).outcomes,
		"quota": func(s *script, words, want, _ []string) {
			r, seen := s.request(words), s.seen
			d := s.engine.Quota(s.Context(), &r.Request)
			if s.seen != seen {
				s.errorf("the quota was observed")
			}
			s.check(&d, r, new(Trace), want)
		},
		"each": func(s *script, _, _, block []string) {
			s.list(block, func(reqs []*Request, ds []Decision) { s.engine.DecideEach(s.Context(), reqs, ds) })
		},
		"together": func(s *script, _, want, block []string) {
			s.list(block, func(reqs []*Request, ds []Decision) {
				if allowed := s.engine.DecideTogether(s.Context(), reqs, ds); allowed != (want[0] == "allowed") {
					s.errorf("allowed: %v", allowed)
				}
			})
		},
		"place": func(s *script, words, want, _ []string) { // NAME: from now on, another process holds its permits
			s.places[words[0]] = s.engine.Place(s.named(words[0]))
			if (s.places[words[0]] == "") != slices.Contains(want, "none") {
				s.errorf("the place is %q", s.places[words[0]])
			}
		},
		"hold": func(s *script, words, want, _ []string) {
			held, err := s.engine.HoldPlace(s.Context(), s.places[words[0]])
			if fmt.Sprint(held) != want[0] || err != nil {
				s.errorf("held %v, %v", held, err)
			}
		},
		"release-place": func(s *script, words, want, _ []string) {
			s.err(s.engine.ReleasePlace(s.Context(), s.places[words[0]]), want)
		},
	}
}

// policyTexts has the steps that compare texts about the active policy, and about a policy that would replace it:
// "changes -> TEXT…", with the other policy below.
var policyTexts = map[string]func(is, next *Policy) []string{
	"restarts": func(is, next *Policy) (all []string) {
		for _, r := range next.Restarts(is) {
			all = append(all, fmt.Sprintf("%s %s: %s, then %s", r.Rule, r.From, r.Was, r.Is))
		}
		return all
	},
	"changes": func(is, next *Policy) (all []string) {
		for _, change := range next.Changes(is) {
			all = append(all, change.String())
		}
		return all
	},
	"in-flight": func(is, _ *Policy) []string { return is.InFlight() },
	"outages": func(is, _ *Policy) (all []string) {
		for _, o := range is.Outages() {
			all = append(all, fmt.Sprintf("%s: %v, %s", o.Rule, o.OnError, o.Why))
		}
		return all
	},
	"debts": func(is, _ *Policy) (all []string) {
		for _, d := range is.Debts() {
			all = append(all, fmt.Sprintf("%s owes %d, at once %d of %d, for %v", d.Rule, d.Units, d.AtOnce, d.Largest, d.Lockout.Round(time.Millisecond)))
		}
		return all
	},
}

func (s *script) named(name string) Decision {
	d, known := s.decisions[name]
	if !known {
		s.Fatalf("line %d: no decision has the name %q: the names are %q", s.first+s.at, name, slices.Sorted(maps.Keys(s.decisions)))
	}
	return d
}

// list decides about the requests of a list, one on each line.
func (s *script) list(block []string, decide func(reqs []*Request, ds []Decision)) {
	var all []scriptLine
	var reqs []*Request
	for _, line := range block {
		if in := testkit.Words(line); len(in) > 0 {
			all = append(all, s.line(in))
			reqs = append(reqs, &s.request(all[len(all)-1].request).Request)
		}
	}
	ds := make([]Decision, len(reqs))
	decide(reqs, ds)
	for i, a := range all {
		if a.name != "" {
			s.decisions[a.name] = ds[i].Clone()
		}
		if a.want != nil {
			s.check(&ds[i], new(testRequest), new(Trace), a.want)
		}
	}
}

// left peeks at a subject: "left RULE KEY -> FROM:REMAINING… FIELD=VALUE…". The fields are those of the first limit,
// and a number alone is its remaining units.
func (s *script) left(words, want, _ []string) {
	results, err := s.subject(words).Peek(s.Context())
	if err != nil {
		s.err(err, want)
		return
	}
	var got, limits []string
	for _, r := range results {
		got = append(got, strings.TrimSuffix(r.From+"/"+r.Name, "/")+fmt.Sprint(":", r.Remaining))
	}
	for _, word := range want {
		field, value, found := strings.Cut(word, "=")
		switch {
		case !found && !strings.Contains(word, ":"):
			field, value = "left", word
			fallthrough
		case found:
			if is := fieldOf(&results[0], field); is != value {
				s.errorf("%s is %s: %v", field, is, got)
			}
		default:
			limits = append(limits, word)
		}
	}
	if limits != nil && !slices.Equal(got, limits) {
		s.errorf("left: %v", got)
	}
}

// outcomes plays a table of outcomes and of the units that the first rule charges for the request in the end. The N of
// "outcomes N" is the charge before the outcome, and after an outcome that leaves it "open".
func (s *script) outcomes(estimate, _, block []string) {
	rule := s.engine.Policy().rules[0].name
	for _, line := range block {
		row := testkit.Words(line)
		if len(row) == 0 {
			continue
		}
		reset(s, s.engine, rule)
		most, want := remains(s, s.engine, rule), row[len(row)-1]
		used := func(want, when string) {
			if used := most - remains(s, s.engine, rule); fmt.Sprint(used) != want {
				s.errorf("%s\n%d units are taken %s", line, used, when)
			}
		}
		req := get("/")
		if len(estimate) > 1 {
			req = &s.request(estimate[1:]).Request
		}
		d := pass(s, s.engine, req)
		if used(estimate[0], "before the outcome"); !d.Unsettled() {
			s.errorf("%s\nthe request does not wait for an outcome", line)
		}
		s.engine.Settle(s.Context(), d, s.outcome(row[:len(row)-2]))
		if want == "open" {
			used(estimate[0], "after an unknown outcome")
			continue
		}
		used(want, "in the end")
		s.engine.Settle(s.Context(), d, Outcome{Verdict: CountsNot, Cost: -1})
		used(want, "after it was settled again")
	}
}
