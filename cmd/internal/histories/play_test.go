package histories

import (
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Every layer returns the verdicts that a history expects.
func TestHistories(t *testing.T) {
	t.Parallel()
	for _, h := range loadHistories(t) {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			for _, l := range layers {
				if h.without[l.name] == "" {
					t.Run(l.name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { play(t, h, l) })
					})
				}
			}
		})
	}
}

// player plays a history through a layer.
type player struct {
	*testing.T
	history *history
	layer   layer
	engine  *policy.Engine
	at      string // the current step

	policy              string // the name of the policy in force
	overrides, subjects []string
	open                map[string]*ongoing // requests in flight by their names in "begin"
	waiting             []func()            // functions that compare the verdicts of queued requests
}

// ongoing is a request that has been sent.
type ongoing struct {
	request
	mode    string        // "peek", "refund" or none
	holds   bool          // it stays in flight until it is released
	release chan struct{} // closed by "end"
	got     verdict
	compare func()        // called by "end" if the verdict is still missing
	took    time.Duration // from its start to its verdict
}

func play(t *testing.T, h *history, l layer) {
	// The history starts at a full hour, at which windows begin.
	time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
	p := &player{T: t, history: h, layer: l, at: h.name, open: make(map[string]*ongoing)}
	p.engine = policy.NewEngine(l.store(p), p.compile())
	send := l.open(p)
	defer func() {
		for _, o := range p.open {
			close(o.release)
		}
	}()
	for _, s := range h.steps {
		p.at = s.line
		switch s.verb {
		case "request":
			for range s.times {
				p.ask(send, s)
			}
		case "end":
			p.end(s.args)
		case "wait":
			time.Sleep(p.duration(s.args))
		default:
			p.administer(s)
		}
		if t.Failed() {
			return
		}
	}
	if len(p.waiting) > 0 {
		time.Sleep(time.Hour) // long enough for every queued request
		synctest.Wait()
	}
	for _, compare := range p.waiting {
		compare()
	}
}

// hold calls hold every few seconds until the request ends.
func (o *ongoing) hold(hold func()) {
	if !o.holds {
		return
	}
	go func() {
		for {
			select {
			case <-time.After(5 * time.Second):
				hold()
			case <-o.release:
				return
			}
		}
	}()
}

// finally calls end when the request ends, for layers that report the end.
func (o *ongoing) finally(end func()) {
	if !o.holds {
		end()
		return
	}
	go func() {
		<-o.release
		end()
	}()
}

// ask sends a request and compares its verdict, now or, if it waits in a queue, at the end.
func (p *player) ask(send func(*ongoing), s step) {
	p.Helper()
	o := &ongoing{request: s.request, mode: s.mode, release: make(chan struct{})}
	if s.mode == "begin" {
		o.mode, o.holds, p.open[s.as] = "", true, o
	}
	answered := false
	began := time.Now()
	go func() {
		send(o)
		o.took = time.Since(began)
		answered = true
	}()
	synctest.Wait()
	switch {
	case answered || o.holds && o.got.status != 0:
		p.compare(s, o)
		return
	case o.holds:
		o.compare = func() { p.compare(s, o) }
		return
	}
	p.waiting = append(p.waiting, func() {
		if !answered {
			p.Errorf("%s: no answer within an hour", s.line)
		}
		o.got.delay = max(o.got.delay, o.took)
		p.compare(s, o)
	})
}

func (p *player) end(args []string) {
	p.Helper()
	o := p.open[strings.Join(args, " ")]
	if o == nil {
		p.Fatalf("%s: no request in flight has this name", p.at)
	}
	delete(p.open, strings.Join(args, " "))
	close(o.release)
	synctest.Wait()
	if o.compare != nil {
		o.compare()
	}
}

// compare compares the values that the verdict of a step contains and the layer returns.
func (p *player) compare(s step, o *ongoing) {
	p.Helper()
	want, got, sees := s.want, o.got, p.layer.sees
	wrong := func(what string, want, got any) {
		p.Helper()
		p.Errorf("%s\n%s: %s is %v, want %v", s.line, p.layer.name, what, got, want)
	}
	if sees.allowedOnly {
		if (got.status == 200) != (want.status == 200) {
			wrong("allowed", want.status == 200, got.status == 200)
		}
	} else if got.status != want.status {
		wrong("the status", want.status, got.status)
	}
	if want.delay != got.delay {
		wrong("the delay", want.delay, got.delay)
	}
	if want.retry != 0 && (want.retry != sluice.Never || !sees.noNever) {
		retry := want.retry
		if want.status == 403 && !sees.blockWaits {
			retry = sluice.Never
		}
		if !sees.exact && retry != sluice.Never {
			retry = (retry + time.Second - 1).Truncate(time.Second)
		}
		if got.retry != retry {
			wrong("the wait", retry, got.retry)
		}
	}
	if sees.reasons && (want.blocked != got.blocked || want.missing != got.missing) {
		wrong("the reason", fmt.Sprintf("blocked by %q, missing %q", want.blocked, want.missing),
			fmt.Sprintf("blocked by %q, missing %q", got.blocked, got.missing))
	}
	if sees.repeats && want.repeated != got.repeated {
		wrong("repeated", want.repeated, got.repeated)
	}
	if want.exempt && len(got.left) > 0 {
		wrong("limits of an exempt request", "nothing", got.left)
	}
	if len(want.left) > 0 {
		p.compareLeft(want.left, got.left, wrong)
	}
}

func (p *player) compareLeft(want, got []left, wrong func(what string, want, got any)) {
	p.Helper()
	want = slices.Clone(want)
	if !p.layer.sees.shadows {
		want = slices.DeleteFunc(want, func(l left) bool { return l.shadow })
	}
	if len(want) == 1 && want[0].name == "" && len(got) == 1 {
		want[0].name = got[0].name
	}
	matches := slices.Equal(want, got)
	if p.layer.sees.tightest {
		matches = len(want) == 0 && len(got) == 0 || len(got) == 1 && slices.ContainsFunc(want, func(l left) bool {
			return l.units == got[0].units && l.shadow == got[0].shadow && (l.name == got[0].name || got[0].name == "")
		})
	}
	if !matches {
		wrong("remaining units", want, got)
	}
}

// document returns the policy in force, with the overrides and subjects that steps have added.
func (p *player) document() policy.Document {
	p.Helper()
	text, found := p.history.policies[p.policy]
	if !found {
		p.Fatalf("%s: no section \"-- policy %s --\"", p.at, p.policy)
	}
	text += list("overrides", p.overrides) + list("subjects", p.subjects)
	if p.layer.attributes {
		text = headerPart.ReplaceAllString(text, "attr:$1")
	}
	doc, err := policyfile.Decode(p.history.name, []byte(text))
	if err != nil {
		p.Fatalf("%s: %v", p.at, err)
	}
	if p.layer.forwards {
		doc.TrustedProxies = append(doc.TrustedProxies, "127.0.0.1")
	}
	if p.layer.consistency != "" {
		for i := range doc.Rules {
			doc.Rules[i].Consistency = p.layer.consistency
		}
	}
	return doc
}

// headerPart matches key parts from headers.
var headerPart = regexp.MustCompile(`header:(\S)`)

func list(name string, entries []string) string {
	if len(entries) == 0 {
		return ""
	}
	return name + ":\n  - " + strings.Join(entries, "\n  - ") + "\n"
}

func (p *player) compile() *policy.Policy {
	p.Helper()
	compiled, err := policy.Compile(p.document())
	if err != nil {
		p.Fatalf("%s: %v", p.at, err)
	}
	return compiled
}

// administer executes a step of an operator.
func (p *player) administer(s step) {
	p.Helper()
	switch rest := strings.Join(s.args, " "); s.verb {
	case "policy":
		p.policy = rest
		p.engine.Swap(p.compile())
	case "override":
		p.overrides = append(p.overrides, rest)
		p.engine.Swap(p.compile())
	case "subject":
		p.subjects = append(p.subjects, rest)
		p.engine.Swap(p.compile())
	case "reset":
		if err := p.subject(s.args).Reset(p.Context()); err != nil {
			p.Fatalf("%s: %v", p.at, err)
		}
	case "unblock":
		p.subject(s.args).Unblock()
	case "block":
		until := time.Time{}
		if n := len(s.args); n > 2 && s.args[n-2] == "until" {
			until = time.Now().Add(p.duration(s.args[n-1:]))
			s.args = s.args[:n-2]
		}
		if err := p.subject(s.args).Block(until); err != nil {
			p.Fatalf("%s: %v", p.at, err)
		}
	}
}

// subject parses "RULE PART=VALUE …".
func (p *player) subject(args []string) *policy.Subject {
	p.Helper()
	key := make(map[string]string)
	for _, arg := range args[1:] {
		part, value, _ := strings.Cut(arg, "=")
		if p.layer.attributes {
			part = headerPart.ReplaceAllString(part, "attr:$1")
		}
		key[part] = value
	}
	s, err := p.engine.Subject(args[0], key)
	if err != nil {
		p.Fatalf("%s: %v", p.at, err)
	}
	return s
}

func (p *player) duration(args []string) time.Duration {
	p.Helper()
	d, err := parseWait(strings.Join(args, " "))
	if err != nil {
		p.Fatalf("%s: %v", p.at, err)
	}
	return d
}

// cannot fails the test because the layer cannot express the step.
func (p *player) cannot(what string) {
	p.Helper()
	p.Fatalf("%s\nthe history needs a line \"without %s: %s\"", p.at, p.layer.name, what)
}

// silent is the logger of the layers.
func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// seconds returns a duration of n seconds, or Never if n is negative or too large.
func seconds(n int64) time.Duration {
	if n < 0 || n > math.MaxInt64/int64(time.Second) {
		return sluice.Never
	}
	return time.Duration(n) * time.Second
}
