// Package recommend proposes limits from the traffic in access logs, with the confidence that the amount of data
// allows. Package cli imports it; it imports packages replay, feed and accesslog.
//
// At each rate, a subject needs a burst: the least one with which a token bucket of this rate denies none of the
// subject's requests. The bursts of the subjects of a log are a sample, and an order statistic of a sample bounds
// the share of all subjects that exceed it, whatever the distribution (Wilks 1941). The proposed rate is the one
// that allows a single subject the fewest requests in a window. Some of the subjects determine the rate, and the
// others the burst. If there are enough subjects to be sure of every rate, all subjects determine both.
//
// Logs are read three times: to learn the routes; to measure bursts, through the same engine that decides about
// live traffic; and to replay the resulting policy.
package recommend

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// Config has the logs for a recommendation, and the promise that its limits have to keep.
type Config struct {
	Files      []string // read three times, so none may be "-"
	Feed       feed.Options
	Share      *big.Rat // the share of subjects, and of requests, that may be denied
	Confidence *big.Rat
	Window     time.Duration  // the limits allow a single subject as little as possible in this time
	Key        string         // the key of the proposed rules, as in a policy
	Tokens     string         // the kind of tokens to limit, as in a policy's cost; empty means to limit requests
	Zone       *time.Location // the time zone of days; nil means UTC
	Compile    func(policy.Document) (*policy.Policy, error)
	NewStore   func(maxBytes int64) replay.Store
	Memory     int64 // bytes for the states of subjects; 0 means 512 MiB
}

// everything is the name of the rule for all requests.
const everything = "all"

// leastSubjects is the least number of subjects for which a limit is proposed. With fewer, the data cannot show
// with a confidence of 95 % that at most one subject in a hundred exceeds the limit.
const leastSubjects = 299

// Run reads the logs and recommends limits.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	s, err := survey(ctx, c)
	if err != nil {
		return nil, err
	}
	doc := policy.Document{Rules: []policy.Rule{c.measuring(everything, "")}}
	taken := map[string]bool{everything: true}
	for _, r := range s.routes.groups() {
		doc.Rules = append(doc.Rules, c.measuring(ruleName(r.pattern, taken), r.pattern))
	}
	g, err := measure(ctx, c, doc)
	if err != nil {
		return nil, err
	}
	if len(g.rules[everything].subjects) == 0 {
		return nil, errNoRequests
	}
	abuse := findAbuse(sorted(g.rules[everything].subjects))
	r := propose(c, s, g, doc, abuse)
	if r.Replay, err = replayed(ctx, c, r, abuse); err != nil {
		return nil, err
	}
	return r, nil
}

// readings is the number of times that logs are read.
const readings = 3

// reading returns the options for one reading; number counts from 0. The reported progress is that of all readings
// together.
func (c *Config) reading(number int64) feed.Options {
	o := c.Feed
	if show := o.Progress; show != nil {
		o.Progress = func(p feed.Progress) {
			p.Done, p.Total = p.Done+number*p.Total, readings*p.Total
			show(p)
		}
	}
	return o
}

// measuring returns a rule with the match and the key that the proposed rule will have.
func (c *Config) measuring(name, match string) policy.Rule {
	r := policy.Rule{Name: name, Key: []string{c.Key}, Limit: "1/second"}
	if c.Tokens != "" { // no estimate exceeds this limit
		r.Limit, r.Cost, r.Count = "1000000/second", policy.Cost{Tokens: c.Tokens}, policy.Count{Status: []policy.Status{"2xx"}}
	}
	if match != "" {
		r.Match = []string{match}
	}
	if c.Key != "client_ip" {
		r.Missing = "skip"
	}
	return r
}

func measure(ctx context.Context, c Config, doc policy.Document) (*gauge, error) {
	p, err := c.Compile(doc)
	if err != nil {
		return nil, err
	}
	g := &gauge{rules: map[string]*measured{}, zone: c.Zone, room: c.Memory}
	for i, r := range doc.Rules {
		g.rules[r.Name] = &measured{subjects: map[string]*subject{}, detailed: i == 0}
	}
	engine := policy.NewEngine(g, p)
	builder := replay.NewRequestBuilder(&doc)
	var d policy.Decision
	_, err = feed.Read(ctx, c.Files, c.reading(1), func(b *feed.Batch) error {
		defer b.Release()
		for _, e := range b.Entries {
			r, name := builder.Build(&e.Entry)
			if !g.setRequest(&e.Entry, name, c.Tokens) {
				continue
			}
			engine.DecideInto(ctx, r, &d)
		}
		return ctx.Err()
	})
	return g, err
}

func propose(c Config, s *surveyed, g *gauge, doc policy.Document, abuse []aside) *Result {
	t := terms{c.Share, c.Confidence, c.Window, time.Duration(s.stats.To-s.stats.From) * time.Microsecond}
	r := &Result{
		Share: exactPercent(c.Share), Confidence: exactPercent(c.Confidence), Window: printable.Duration(c.Window), Key: c.Key, Tokens: c.Tokens,
		Requests: s.stats.Requests, Unreadable: s.stats.Unreadable, Needed: t.least(), Notes: s.notes(),
		From: time.UnixMicro(s.stats.From).In(c.Zone), To: time.UnixMicro(s.stats.To).In(c.Zone),
	}
	for _, f := range s.stats.Files {
		r.Files = append(r.Files, f.Name+" ("+f.Format+")")
	}
	if g.halvings > 0 {
		r.Sampled = 1 << min(g.halvings, 62)
		r.Notes = append(r.Notes, fmt.Sprintf("Memory is too small for all subjects: one in %d was measured, chosen by a hash. The promise holds nevertheless; percentages of this log are estimates.", r.Sampled))
	}
	if c.Tokens != "" {
		r.Notes = append(r.Notes, "The limits are in tokens ("+c.Tokens+") of responses with a status 2xx. Each has room for one request that does not limit its output. If a client sends several such requests at once, add their tokens to the burst.")
	}
	left := without(abuse)
	p, _ := c.Compile(doc)
	for _, a := range abuse {
		all, _ := a.before(never)
		r.Aside = append(r.Aside, Aside{Key: a.shown(p), Requests: a.requests, Burst: all.burst(watched), Why: a.why})
	}
	for _, rule := range doc.Rules {
		out := t.rule(g.rules[rule.Name], left)
		out.Name, out.Match = rule.Name, strings.Join(rule.Match, "")
		if c.Tokens != "" {
			out.Convention = nil // the convention is about requests
		}
		if rule.Name == everything {
			r.Days = len(days(sorted(g.rules[everything].subjects)))
		}
		if out.Limit != "" {
			rule.Limit, rule.Algorithm, rule.Shadow = out.Limit, out.Algorithm, true
			r.Document.Rules = append(r.Document.Rules, rule)
		}
		r.Rules = append(r.Rules, out)
	}
	return r
}

// never is a day after all others.
const never = 1<<31 - 1

// subjectOf returns a key without the name of its rule.
func subjectOf(key string) string {
	_, subject, _ := strings.Cut(key, "/")
	return subject
}

// shown returns the key of the subject on one line, in the form in which the policy shows keys.
func (s *subject) shown(p *policy.Policy) string {
	if s.name != "" {
		return p.ShownKey(string(sluice.AppendKeyPart([]byte(everything+"/"), s.name)))
	}
	return p.ShownKey(s.key)
}

// without returns the set of the subjects in abuse, which are left out of the estimates.
func without(abuse []aside) map[string]bool {
	left := map[string]bool{}
	for _, a := range abuse {
		left[subjectOf(a.key)] = true
	}
	return left
}

func sorted(subjects map[string]*subject) []*subject {
	return slices.SortedFunc(maps.Values(subjects), func(a, b *subject) int { return strings.Compare(a.key, b.key) })
}

// rule proposes a limit from the measured subjects. It leaves out the subjects in left.
func (t *terms) rule(m *measured, left map[string]bool) Rule {
	all := sorted(m.subjects)
	var kept, aside []*subject
	for _, s := range all {
		if left[subjectOf(s.key)] {
			aside = append(aside, s)
		} else {
			kept = append(kept, s)
		}
	}
	subjects := points(kept, never)
	r := Rule{Subjects: len(subjects)}
	for _, p := range subjects {
		r.Requests += p.requests
	}
	if len(subjects) < leastSubjects {
		return r
	}
	b := t.choose(subjects)
	r.N = b.n
	r.Attainable = attainable(b.n, t.sure)
	if b.looks > 1 {
		r.Attainable = attainable(b.n, t.surer())
	}
	limit, safe := limitOf(b.at, b.exact, t.window)
	r.Limit, r.Algorithm, r.Exact = limit.String(), limit.Algorithm.String(), b.exact
	r.Promised, r.J = b.sure, b.j
	r.Confidence = b.holds(confidence(b.n, b.j, t.share))
	r.Above, r.RequestsAbove = above(subjects, b.at, safe)
	r.Harm = harm(safe, grid[b.at], t.window)
	if limit.Burst == 0 {
		r.Harm = float64(limit.Count)
	}
	if len(aside) > 0 {
		with := points(all, never)
		r.WithAside = nextRound(t.burst(with, with, b.at, b.j).exact)
	}
	for _, at := range []int{b.at - 1, b.at + 1} {
		if at >= 0 && at < rates {
			n := nextRound(t.burst(subjects, subjects, at, b.j).exact)
			r.Neighbors = append(r.Neighbors, Neighbor{grid[at].limit(n), harm(n, grid[at], t.window)})
		}
	}
	r.Convention = t.convention(subjects)
	r.describe(tail(subjects, b.at))
	r.try(t, b, kept, aside)
	return r
}

// try proposes a limit for each of the last days from the days before, and records how it would have done.
func (r *Rule) try(t *terms, b bound, kept, aside []*subject) {
	all := days(kept)
	for _, d := range all {
		r.NextSubjects = max(r.NextSubjects, d.subjects)
	}
	twice := new(big.Rat).Add(t.share, t.share)
	r.NextDay = b.holds(nextDay(b.n, b.j, r.NextSubjects, int(part(twice, int64(r.NextSubjects)))))
	if len(all) == 0 {
		return
	}
	// Days with few subjects are no test of a limit.
	all = slices.DeleteFunc(all[1:], func(d dayCount) bool { return 10*d.subjects < r.NextSubjects })
	for _, d := range all[max(0, len(all)-lastDays):] {
		if f, ok := t.forward(kept, aside, d.number); ok {
			r.Forward = append(r.Forward, f)
		}
	}
}

// describe sets the distribution of bursts.
func (r *Rule) describe(steps []step) {
	for _, share := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		above := int((1 - share) * float64(r.Subjects))
		r.Bursts = append(r.Bursts, Quantile{share, exceededBy(steps, above)})
	}
	for _, s := range slices.Backward(steps) {
		to := nextRound(s.burst)
		if n := len(r.Histogram); n == 0 || r.Histogram[n-1].To != to {
			r.Histogram = append(r.Histogram, HistogramBar{To: to})
		}
		r.Histogram[len(r.Histogram)-1].Subjects += s.subjects
	}
}

// convention returns the limit that articles advise, for the given subjects.
func (t *terms) convention(subjects []point) *Convention {
	busiest := make([]int32, len(subjects))
	for i, p := range subjects {
		busiest[i] = p.perSecond
	}
	slices.Sort(busiest)
	c := &Convention{P99: busiest[len(busiest)-1-len(busiest)/100]}
	// The conventional rate is the next round number above the percentile, and the burst is ten seconds of this
	// rate.
	count := nextRound(int64(c.P99) + 1)
	at := slices.Index(grid[:], rate{count, time.Second})
	if at < 0 {
		return nil
	}
	burst := 10 * count
	c.Limit, c.Harm = grid[at].limit(burst), harm(burst, grid[at], t.window)
	c.Above, _ = above(subjects, at, burst)
	return c
}

// surveyed has the results of the first reading.
type surveyed struct {
	routes  routes
	stats   feed.Stats
	minutes [60]int64 // requests by minute of the hour
	seconds [60]int64 // requests by second of the minute
	limited int64     // requests with status 429 or 503
	ended   int64
}

func survey(ctx context.Context, c Config) (*surveyed, error) {
	s := &surveyed{}
	var err error
	options := c.reading(0)
	options.Begin = func(files []feed.File) error {
		doc := policy.Document{Rules: []policy.Rule{c.measuring(everything, "")}}
		switch lacking := replay.Unjudged(doc, files); {
		case len(lacking) == 0:
			return nil
		case strings.HasSuffix(lacking[0].Needs, "_tokens"):
			return fmt.Errorf("there are no tokens to limit: %s", lacking[0].Why)
		default:
			return fmt.Errorf("requests cannot be distinguished by %s: %s", lacking[0].Needs, lacking[0].Why)
		}
	}
	s.stats, err = feed.Read(ctx, c.Files, options, func(b *feed.Batch) error {
		defer b.Release()
		for _, e := range b.Entries {
			s.note(&e.Entry)
		}
		return ctx.Err()
	})
	return s, err
}

func (s *surveyed) note(e *accesslog.Entry) {
	s.routes.note(string(e.Method), string(e.Target))
	second := e.Time / 1e6
	s.minutes[second/60%60]++
	s.seconds[second%60]++
	if e.Status == 429 || e.Status == 503 {
		s.limited++
	}
	if e.Ended {
		s.ended++
	}
}

// leastLog is the least length of a log for limits without a warning. It is less than a day, because a log of a day
// hardly ever begins and ends exactly at midnight.
const leastLog = 23 * time.Hour

// notes returns sentences about properties of the log that affect bursts.
func (s *surveyed) notes() (notes []string) {
	n := s.routes.requests
	if lasts := time.Duration(s.stats.To-s.stats.From) * time.Microsecond; lasts < leastLog {
		notes = append(notes, fmt.Sprintf("LESS THAN A DAY OF TRAFFIC (%s): do not enforce limits that are made from this log. Depending on the hours in a log, limits differ by a factor of 100 and more: use logs of a whole day, or better of a week.", words.Span(lasts)))
	}
	for _, clock := range []struct {
		counts *[60]int64
		one    string
	}{{&s.minutes, "one minute of the hour"}, {&s.seconds, "one second of the minute"}} {
		if most := slices.Max(clock.counts[:]); n >= 100 && 10*most >= 9*n {
			notes = append(notes, fmt.Sprintf("%s of all requests are in %s (:%02d): the log is a sample or its clock is wrong, so the bursts are artefacts. Do not enforce limits that are made from this log.",
				percent(float64(most)/float64(n)), clock.one, slices.Index(clock.counts[:], most)))
		}
	}
	fine, sampled := true, false
	for _, f := range s.stats.Files {
		fine, sampled = fine && f.Tells.Fine, sampled || f.Tells.Sampled
	}
	if !fine {
		notes = append(notes, "Times are whole seconds: all requests of a second count as simultaneous, so real bursts are at most as large.")
	}
	if 2*s.ended > n {
		notes = append(notes, "The times are when requests ended, and not when they began: slow requests that end together look like a burst.")
	}
	if 100*s.limited > n {
		notes = append(notes, fmt.Sprintf("%s of the responses were 429 or 503. The log of a server behind a limiter has retries, and not the requests that clients would have sent without the limiter.", percent(float64(s.limited)/float64(n))))
	}
	if sampled {
		notes = append(notes, "The log may leave requests out: real bursts are larger.")
	}
	if s.stats.Unreadable > 0 {
		notes = append(notes, words.Counted(s.stats.Unreadable, "line")+" could not be read, and "+words.Counted(s.stats.Late, "request")+" were too far out of order to be sorted.")
	}
	return notes
}
