package pace

import "time"

// These constants bound the number of servers, and of the routes and limits of a server. At the bound, a new one
// replaces another one: see forget.
const (
	maxPeers  = 256
	maxRoutes = 256
	maxLimits = 64
)

// peer is what one client knows about a server.
type peer struct {
	limits   map[string]*remembered
	routes   map[uint64]*route
	underWay map[*Pass]struct{}
	answers  int           // the number of answers that reported limits
	changed  chan struct{} // closed when a limit has more room; nil if no requests wait
	used     time.Time
}

type remembered struct {
	limit
	answer int // the number of the latest answer that contained the limit
	used   time.Time
}

// route is what the client knows about a route.
type route struct {
	limits []*limit // the limits in the latest answer that reported any
	own    limit    // a limit inferred from refusals that no reported limit explains
	used   time.Time
}

func (p *Pacer) peer(key uint64, now time.Time) *peer {
	one := p.peers[key]
	if one == nil {
		if p.peers == nil {
			p.peers = map[uint64]*peer{}
		}
		one = &peer{limits: map[string]*remembered{}, routes: map[uint64]*route{}, underWay: map[*Pass]struct{}{}}
		forget(p.peers, maxPeers, func(x *peer) time.Time { return x.used })
		p.peers[key] = one
	}
	one.used = now
	return one
}

func (p *peer) route(key uint64, now time.Time) *route {
	one := p.routes[key]
	if one == nil {
		one = &route{}
		forget(p.routes, maxRoutes, func(x *route) time.Time { return x.used })
		p.routes[key] = one
	}
	one.used = now
	return one
}

// forget makes room in a map for a new entry. If the map has the maximum number of entries, forget removes the least
// recently used of 16 random entries.
func forget[K comparable, V any](all map[K]*V, maximum int, used func(*V) time.Time) {
	if len(all) < maximum {
		return
	}
	var oldest K
	var at time.Time
	n := 0
	for k, v := range all { // in random order
		if u := used(v); n == 0 || u.Before(at) {
			oldest, at = k, u
		}
		if n++; n == 16 {
			break
		}
	}
	delete(all, oldest)
}

// limitsOf returns the limits that apply to a route.
func (p *peer) limitsOf(key uint64, now time.Time) (limits []*limit) {
	known := p.routes[key]
	if known != nil {
		known.used = now
		limits = append(limits, &known.own)
		limits = append(limits, known.limits...)
	}
	if known == nil || len(known.limits) == 0 {
		for _, l := range p.limits {
			if l.always && l.several {
				limits = append(limits, &l.limit)
			}
		}
	}
	return limits
}

// news returns a channel that is closed when a limit has more room.
func (p *peer) news() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

func (p *peer) record(pass *Pass, a Answer, now time.Time) {
	r := p.route(pass.to.Route, now)
	before := r.own.wait(now)
	explained := false
	for _, s := range a.States {
		explained = explained || s.Left == 0
	}
	switch {
	case !a.Refused:
		r.own.pass(pass.at, now)
	case !explained:
		r.own.refuse(a.Promise, now)
	}
	more := r.own.wait(now) < before
	if len(a.States) > 0 {
		more = p.recordStates(r, pass, a.States, now) || more
	}
	if more && p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// recordStates records the states in an answer, and reports whether a limit has more room than before.
func (p *peer) recordStates(r *route, pass *Pass, states []State, now time.Time) (more bool) {
	p.answers++
	r.limits = r.limits[:0]
	for _, s := range states {
		l := p.limit(s.Name, pass.to.Route, now)
		before := l.wait(now)
		l.update(s, p.uncounted(l, pass, now), pass.at, now)
		more = more || l.wait(now) < before
		r.limits = append(r.limits, l)
	}
	for _, l := range p.limits {
		l.always = l.always && l.answer == p.answers
	}
	return more
}

// uncounted returns a number of other requests under a limit: those that the server had possibly not counted yet when
// it answered pass. These are the requests under way, except old ones: if a request was sent before pass, by more time
// than the answer to pass took, the server has probably counted it.
func (p *peer) uncounted(l *limit, pass *Pass, now time.Time) (n int64) {
	since := pass.at.Add(-now.Sub(pass.at))
	for other := range p.underWay {
		if !other.at.Before(since) && other.under(l, pass.to.Route) {
			n++
		}
	}
	return n
}

func (p *peer) limit(name string, route uint64, now time.Time) *limit {
	one := p.limits[name]
	if one == nil {
		one = &remembered{limit: limit{always: p.answers == 1, route: route, since: now}}
		forget(p.limits, maxLimits, func(x *remembered) time.Time { return x.used })
		p.limits[name] = one
	}
	one.used, one.answer = now, p.answers
	one.several = one.several || one.route != route
	return &one.limit
}
