package synced

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
)

// reportTimeout is the time limit for a report to the shared store. It is long, because a report that may not have
// arrived is not sent again.
const reportTimeout = time.Second

// report describes a call that reports the units of a pool.
type report struct {
	pool         *pool
	cost, window int64
	shard        int
}

// keepReporting exchanges counts with the shared store until ctx ends.
func (s *Store) keepReporting(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	unavailable := map[int]bool{} // shards of the store that did not answer
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.reportAll(ctx, unavailable)
	}
}

// reportAll sends reports about all pools in use. From each shard that did not answer, it first reads only one key,
// because a report could be lost.
func (s *Store) reportAll(ctx context.Context, unavailable map[int]bool) {
	if len(unavailable) > 0 {
		calls, reports := s.reports(func(shard int) (include, charge bool) {
			first := unavailable[shard]
			delete(unavailable, shard)
			return first, false
		})
		s.report(ctx, calls, reports, unavailable)
	}
	calls, reports := s.reports(func(shard int) (include, charge bool) { return !unavailable[shard], !unavailable[shard] })
	s.report(ctx, calls, reports, unavailable)
}

// reportLast reports all unreported units.
func (s *Store) reportLast() {
	calls, reports := s.reports(func(int) (include, charge bool) { return true, true })
	s.report(context.Background(), calls, reports, map[int]bool{})
}

// reports returns the calls for the pools in use, with a report for each call, and drops unused pools. For each shard,
// choose returns whether to include its pools, and whether to charge their units or only to read their states.
func (s *Store) reports(choose func(shard int) (include, charge bool)) (calls []sluice.TakeCall, reports []report) {
	for i := range s.tables {
		t := &s.tables[i]
		t.mu.Lock()
		for id, p := range t.pools {
			p.mu.Lock()
			at := s.clock()
			switch idle := at-p.asked > staleAfter && p.pins == 0; {
			case idle && p.own == 0 && p.underWay == 0:
				delete(t.pools, id)
				s.pools.Add(-1)
			case p.own != 0 || p.asked > p.sent && p.back > 0:
				shard := s.shared.Shard(id.key)
				include, charge := choose(shard)
				if !include {
					break
				}
				c := sluice.Charge{Key: id.key, Plan: p.wide}
				if charge {
					c.Cost, c.Until = p.nextReport(at)
					c.Owe = c.Cost > 0 // these units were allowed, even if they exceed the limit
				}
				reports = append(reports, report{p, c.Cost, p.window, shard})
				calls = append(calls, sluice.TakeCall{Charges: []sluice.Charge{c}, Receipts: make([]sluice.Receipt, 1)})
			}
			p.mu.Unlock()
		}
		t.mu.Unlock()
	}
	return calls, reports
}

// report makes the calls of reports to the shared store, and adds the shards that do not answer to unavailable.
func (s *Store) report(ctx context.Context, calls []sluice.TakeCall, reports []report, unavailable map[int]bool) {
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	sent := s.clock()
	s.takeEach(ctx, reportTimeout, calls)
	back := s.clock()
	for i, n := range reports {
		p, r, err := n.pool, &calls[i].Receipts[0], calls[i].Err
		odd := err != nil && len(unreadable(err)) > 0
		p.mu.Lock()
		switch {
		case err == nil && r.Origin == sluice.ByStore:
			p.reported(n.cost, n.window, r, sent, back)
		case odd: // the state is unreadable, so the store has not counted the report
			p.underWay = 0
		case err == nil || notCharged(err):
			p.notReported(n.cost, n.window)
		default:
			p.underWay = 0
		}
		p.mu.Unlock()
		if err != nil && !odd {
			unavailable[n.shard] = true
		}
	}
}
