package kernel

// Snapshot is the state of a key as far as a receipt shows it. As long as nothing is given back, the receipts of
// later denied charges can be derived from the snapshot: units taken after it only add to the used units, so the
// store denies each charge that the snapshot denies.
type Snapshot struct {
	// Now is the time of the receipt, in microseconds since the Unix epoch.
	Now int64

	// state is the state of a meter, a window or a lock. For a log, it has the tick of the newest unit, the number
	// of units, and, as Prev, the tick at which the oldest unit expires: 0 if that is unknown, or if the log is
	// empty. For permits, Used is the number of held permits. For distinct values, Used is the number of
	// values, Tick the time of the last use, and Prev the Wait of the receipt.
	state State
	// For a log, expired is the number of its oldest units that will have expired at the tick expiry.
	expired, expiry int64
}

// Snapshot returns the state of a key as shown by r, the receipt of a charge of cost units. The receipt of a log
// may lack the tick at which its oldest unit expires: the parameter oldest is that tick, or 0 if it is unknown.
func (p *Plan) Snapshot(cost int64, r Receipt, oldest int64) Snapshot {
	s := Snapshot{Now: r.Now}
	switch p.Kernel {
	case Meter:
		s.state = State{Tick: r.Now / p.Tick, Used: r.Used, Prev: p.stateTick()}
	case Window, Lock:
		s.state = r.window()
	case InFlight:
		s.state = State{Used: r.Used}
	case Distinct:
		s.state = State{Tick: r.Tick, Used: r.Used, Prev: r.Wait}
	default:
		if r.Fits {
			cost = 1
		}
		if r.Wait > 0 {
			s.expired, s.expiry = r.Used+cost-p.Capacity, r.Wait
		}
		if s.expired == 1 {
			oldest = r.Wait
		}
		s.state = State{Tick: r.Tick, Used: r.Used, Prev: oldest}
	}
	return s
}

// Receipt returns the receipt that a charge at the time now would get in a Take in which another charge is denied,
// so that nothing is taken. It assumes that nothing has happened since the snapshot, and reports whether the
// receipt is known. The plan must have the fingerprint of the plan that made the snapshot. If the oldest unit of a
// log is unknown, Receipt assumes that no unit has expired; then the receipt is known only if the charge fits. For
// permits, Receipt assumes that none has become free, and that the requested permit is not held. So do not deny a
// charge because of a receipt of permits.
func (s *Snapshot) Receipt(p *Plan, now, cost int64) (r Receipt, known bool) {
	switch {
	case p.Kernel.Log():
		return s.logReceipt(p, now, cost)
	case p.Kernel.Permits():
		r = Receipt{Now: now, Used: s.state.Used, Tick: s.state.Tick, Wait: s.state.Prev}
		r.Fits = cost <= 0 || cost == 1 && r.Used < p.Capacity
		return r, true
	}
	if p.Kernel == Meter {
		if _, above := p.level(s.state, p.Ticks(s.Now)); above {
			return r, false // a plan with a larger Most has raised the level
		}
	}
	if next := p.Step(s.state, now, cost, &r); p.Kernel == Lock && next != s.state {
		return r, false // the penalty is shorter under p: the store has to cut it
	}
	if r.Fits && cost > 0 {
		p.Step(s.state, now, 0, &r)
	}
	return r, true
}

// logReceipt is Receipt for a log, which stays as it was until its oldest unit expires.
func (s *Snapshot) logReceipt(p *Plan, now, cost int64) (r Receipt, known bool) {
	oldest := s.state.Prev
	r = Receipt{Now: now, Tick: s.state.Tick, Used: s.state.Used}
	if r.Fits = cost == 0 || cost <= p.Capacity-r.Used; r.Fits {
		cost = 1
	}
	if oldest > 0 && now >= oldest*p.Tick {
		return r, false
	}
	exact := oldest > 0 || r.Used == 0
	switch expire := r.Used + cost - p.Capacity; {
	case cost > p.Capacity || expire <= 0:
		return r, r.Fits || exact
	case expire == 1 || expire <= s.expired && s.expiry == oldest:
		r.Wait = oldest
	case expire == s.expired:
		r.Wait = s.expiry
	default:
		return r, false
	}
	return r, exact
}

// Remaining returns how many units fit at the time now, as if nothing had happened since the snapshot. For a log,
// Remaining assumes that all units count until the newest expires.
func (s *Snapshot) Remaining(p *Plan, now int64) int64 {
	var r Receipt
	switch {
	case p.Kernel.Permits():
		r = Receipt{Now: now, Used: s.state.Used, Tick: s.state.Tick, Wait: s.state.Prev}
	case !p.Kernel.Log():
		p.Step(s.state, now, 0, &r)
	case now/p.Tick < s.state.Tick+p.Span:
		r = Receipt{Now: now, Tick: s.state.Tick, Used: s.state.Used, Fits: true}
	}
	return p.Remaining(&r)
}
