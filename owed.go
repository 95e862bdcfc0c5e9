package sluice

// Owed returns by how many units the state that a receipt tells of is above the plan's Capacity, rounded
// up: as many have to drain, or expire, before any can fit. It is 0 where nothing is owed ([Charge.Owe]),
// and for penalties and places in flight.
func (p *Plan) Owed(r Receipt) int64 {
	switch p.Kernel {
	case Meter:
		return ceilDiv(max(0, r.Used-p.Size), p.Unit)
	case Window:
		return ceilDiv(max(0, -p.windowRoom(r.window(), p.windowTick(r.Now))), p.Span)
	case Lock, InFlight:
		return 0
	}
	return max(0, r.Used-p.Capacity)
}

// Owes returns the cost in the share of units that are due in any case ([Charge.Owe]): as [Share.Cost], but
// more than the share holds is still more, so that a receipt says how much of it was cut.
func (s Share) Owes(units int64) int64 {
	if units > maxExact/s.unit {
		return maxExact
	}
	return units * s.unit
}

// Units returns how many units of the limit so much is in the share, rounded up.
func (s Share) Units(cost int64) int64 { return ceilDiv(cost, s.unit) }
