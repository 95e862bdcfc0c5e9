package adaptive

import "sync/atomic"

// orphans counts requests that have lost their client, and on which the upstream may be working. Without this
// count, clients that give up and retry could overload an upstream that does not notice when clients leave. An
// orphan counts for as long as its client waited, up to 4 s.
type orphans struct {
	n    atomic.Int64
	slot int64 // the time, in units of grid, up to which orphans were removed
	ends [16]int64
}

// add adds an orphan, given the time at which its client left, and how long the client had waited, both in µs.
func (o *orphans) add(at, waited int64) {
	end := min((at+waited)/grid, o.slot+int64(len(o.ends))-1)
	o.ends[end&int64(len(o.ends)-1)]++
	o.n.Add(1)
}

// sweep removes the orphans that have expired by the given time, in µs.
func (o *orphans) sweep(at int64) {
	now := at / grid
	for range min(now-o.slot, int64(len(o.ends))) {
		o.slot++
		i := o.slot & int64(len(o.ends)-1)
		o.n.Add(-o.ends[i])
		o.ends[i] = 0
	}
	o.slot = max(o.slot, now)
}
