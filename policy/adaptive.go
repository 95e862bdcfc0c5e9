package policy

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// classNames are the names of the classes of requests, indexed by class.
var classNames = []string{adaptive.Sheddable: "sheddable", adaptive.Normal: "normal", adaptive.Critical: "critical"}

// ClassNames returns the names that Class of a [Rule] can have. In an overload, requests of the class that comes first
// are denied first.
func ClassNames() []string { return classNames[adaptive.Sheddable:] }

// maxInFlight is the largest limit of requests under way.
const maxInFlight = 1 << 16

// adaptive compiles an automatic limit of requests under way.
func (c *compiler) adaptive(r *Rule, out *rule) {
	c.without([]setting{
		{"limit", r.Limit != ""}, {"limits", len(r.Limits) > 0}, {"algorithm", r.Algorithm != ""}, {"tiers", len(r.Tiers) > 0}, {"share", !r.Share.isZero()},
		{"distinct", r.Distinct != Distinct{}}, {"cost", !r.Cost.IsZero()}, {"count", !r.Count.isZero()}, {"penalty", r.Penalty != Penalty{}},
		{"together", len(r.Together) > 0}, {"consistency", r.Consistency != ""}, {"on_error", r.OnError != ""}, {"over", r.Over != ""},
	}, "remove it, or use a second rule for it", "a rule with \"in_flight: auto\" counts in each process, by latency, and cannot have %s")
	least, most := r.InFlight.Least, r.InFlight.Most
	c.checkInFlight("in_flight.least", least)
	c.checkInFlight("in_flight.most", most)
	if least > 0 && most > 0 && least > most {
		c.fail("in_flight.least", "use a smaller least or a larger most", "least is %d, and most is %d", least, most)
	}
	out.adaptive = &adaptive.Config{Least: least, Most: most}
	out.own = resolved{from: "rule", source: r.Source}
}

func (c *compiler) checkInFlight(field string, n int64) {
	if n < 0 || n > maxInFlight {
		c.fail(field, "use a number from 1 to 65536", "%s is %d", field, n)
	}
}

// adaptiveOf returns the configuration of the automatic limit of a rule, or nil.
func (p *Policy) adaptiveOf(rule string) *adaptive.Config {
	i, known := p.byName[rule]
	if !known {
		return nil
	}
	return p.rules[i].adaptive
}

// Adaptive returns the names of the rules with "in_flight: auto", in the order of the document.
func (p *Policy) Adaptive() (names []string) {
	for i := range p.rules {
		if p.rules[i].adaptive != nil {
			names = append(names, p.rules[i].name)
		}
	}
	return names
}

// Load is the result of an automatic limit of requests under way. Such a limit counts in one process only: each
// instance finds, by the latency of the responses, how many requests it can send to the upstream. The limit is
// charged together with the request's rate limits, all or none. It counts only requests with Timed set (see
// [Request]).
type Load struct {
	Rule    string
	Source  string // the origin of the rule: see [Rule]
	Key     string // the key of the subject
	Class   string // the class of the request: "critical", "normal" or "sheddable"
	Allowed bool   // the request fits
	Shadow  bool   // the limit does not deny the request
	at      int32  // position of the rule in the document, counted from 1
}

// loadSubject is the subject of a rule with an automatic limit, for one request.
type loadSubject struct {
	rule    *rule
	key     string
	shadow  bool
	fits    bool
	limiter *adaptive.Limiter // nil unless it has given a permit
}

// classify notes the class that a rule gives the request. If several rules give one, the lowest class applies, so
// that no client promotes itself.
func (s *subjects) classify(class adaptive.Class) {
	if s.class == 0 || class < s.class {
		s.class = class
	}
}

// addLoad adds the subject of an automatic limit. A rollout percentage selects the addresses of clients, because most
// rules with an automatic limit have only one subject.
func (s *subjects) addLoad(in *input, r *rule, shadow bool) {
	if !in.timed {
		return
	}
	if r.isPartial() {
		client := in.policy.client(in.request).As16()
		shadow = in.policy.isShadow(r) || r.isShadowFor(client[:])
	}
	s.loads = append(s.loads, loadSubject{rule: r, key: s.keys.Key(nil), shadow: shadow})
}

// enter takes a permit of each automatic limit, or of none. It reports false if a limit denies the request.
func (e *Engine) enter(w *work, d *Decision) (admitted bool) {
	s := &w.subjects
	if d.Missing != "" {
		return true
	}
	s.entered = true
	now, class := e.loads.Now(), s.requestClass()
	for i := range s.loads {
		l := &s.loads[i]
		var limiter *adaptive.Limiter
		limiter, l.key = e.loads.Of(l.rule.name, l.key, l.rule.adaptive)
		if l.fits = limiter.Enter(now, class, l.shadow); !l.fits && !l.shadow {
			d.Overloaded, d.RetryAfter = l.rule.name, retryOverloaded(class)
			s.leave()
			s.loads = s.loads[:i+1] // the remaining limits were not evaluated
			return false
		}
		l.limiter = limiter
	}
	return true
}

func (s *subjects) requestClass() adaptive.Class {
	if s.class == 0 {
		return adaptive.Normal
	}
	return s.class
}

// leave returns the permits of the request to the automatic limits.
func (s *subjects) leave() {
	for i := range s.loads {
		if l := &s.loads[i]; l.limiter != nil {
			l.limiter.Leave()
			l.limiter = nil
		}
	}
}

// retryOverloaded returns a random wait, which spreads the retries. On average, a higher class has a shorter wait.
func retryOverloaded(class adaptive.Class) time.Duration {
	return shortestOverloaded + rand.N(longestOverloaded[class]-shortestOverloaded+1)
}

// shortestOverloaded is the shortest wait. Clients get waits in whole seconds, rounded up. With a shortest wait of
// one second, nearly all critical requests would get two seconds.
const shortestOverloaded = time.Second / 2

// longestOverloaded has the longest wait of each class.
var longestOverloaded = [...]time.Duration{adaptive.Critical: 2 * time.Second, adaptive.Normal: 4 * time.Second, adaptive.Sheddable: 8 * time.Second}

// addLoads adds the automatic limits of the request to d. An allowed decision keeps their permits; otherwise addLoads
// returns them.
func (d *Decision) addLoads(e *Engine, w *work) {
	s := &w.subjects
	class := classNames[s.requestClass()]
	for i := range s.loads {
		l := &s.loads[i]
		if d.Overloaded == "" || !l.fits {
			d.Loads = append(d.Loads, Load{Rule: l.rule.name, Source: l.rule.source, Key: l.key, Class: class, Allowed: l.fits, Shadow: l.shadow, at: int32(l.rule.index) + 1})
		}
	}
	if d.Allowed {
		d.load = e.loads.Hold()
		for i := range s.loads {
			d.load.Add(s.loads[i].limiter)
			s.loads[i].limiter = nil
		}
	} else {
		s.leave()
	}
}

// Because returns "overload" if the request does not fit, and otherwise "": see [Result.Because].
func (l *Load) Because() string {
	if l.Allowed {
		return ""
	}
	return "overload"
}

// Classifying returns the positions in the document of the rules that apply to the request and only classify it:
// see [Rule.OnlyClassifies].
func (o *Observation) Classifying() []int { return o.work.subjects.classifying }

// LoadRuleIndex returns the position in the document of the rule with the automatic limit Loads[i] of the decision.
func (o *Observation) LoadRuleIndex(i int) int { return int(o.Decision.Loads[i].at) - 1 }

// LoadShown returns the key of an automatic limit as it is shown to people (see [Policy.ShownKey]), or "" for a rule
// without a key.
func (o *Observation) LoadShown(i int) string {
	if len(o.Policy().rules[o.LoadRuleIndex(i)].key) == 0 {
		return ""
	}
	return o.Policy().ShownKey(o.Decision.Loads[i].Key)
}

// Answered reports to the automatic limits of an allowed request that the head of the response has arrived, and
// releases their permits. sent is the time at which the request was sent to the upstream or the handler. status is the
// status of the response, or 0 if the client left before the head. An overload lengthens the time until the head of a
// response, so permits are held only for that time. A long stream holds none after its head. Further calls for the
// request do nothing.
func (e *Engine) Answered(d Decision, sent time.Time, status int) {
	o := adaptive.OK
	switch status {
	case 0:
		o = adaptive.Abandoned
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 529: // 529: overloaded
		o = adaptive.Failed
	}
	e.loads.Answered(d.load, sent, o)
}

// Adapts reports whether the request was given permits of automatic limits ("in_flight: auto"), which
// [Engine.Answered] releases.
func (d *Decision) Adapts() bool { return d.load.Pending() }

// LoadState is the state of an automatic limit of requests under way, in this process.
type LoadState struct {
	Rule string
	Key  string // the key of the subject
	// Limit is the limit of normal requests. The limit of sheddable requests is lower, unless Limit is the minimum, and
	// the limit of critical requests is higher.
	Limit, InFlight int64
	// Base is the latency of the upstream without a queue, and Latency is the present latency. Unknown latencies
	// are 0.
	Base, Latency time.Duration
	Denied        map[string]int64 // requests that did not fit, by class, since the limit of the key was made
	// Overloaded is when the present overload started: at the first request that did not fit, after a minute in which
	// every request fitted. It is zero if there is no overload.
	Overloaded time.Time
}

// Loads returns the states of all automatic limits, sorted by key.
func (e *Engine) Loads() (all []LoadState) {
	now := e.loads.Now()
	for key, limit := range e.loads.All() {
		all = append(all, loadState(key, limit.State(now)))
	}
	slices.SortFunc(all, func(a, b LoadState) int { return strings.Compare(a.Key, b.Key) })
	return all
}

func loadState(key string, s adaptive.State) LoadState {
	name, _ := parts.CutKey(key)
	out := LoadState{Rule: name, Key: key, Limit: s.Limit, InFlight: s.InFlight, Base: s.Base, Latency: s.Latency, Denied: make(map[string]int64)}
	for class := adaptive.Sheddable; class <= adaptive.Critical; class++ {
		out.Denied[classNames[class]] = s.Denied[class]
	}
	if s.Overloaded {
		out.Overloaded = time.Unix(0, int64(s.Since))
	}
	return out
}
