package synced

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
)

// tellWithin is the time limit for a report to the shared store. It is long, because a report that may not have
// arrived is not sent again.
const tellWithin = time.Second

// told is a report about a pool.
type told struct {
	pool         *pool
	cost, window int64
	shard        int
}

// keepTelling exchanges counts with the shared store until ctx ends.
func (s *Store) keepTelling(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	away := map[int]bool{} // shards of the store that did not answer
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.tellAll(ctx, away)
	}
}

// tellAll sends reports about all pools in use. For each shard that did not answer, it first only reads one key,
// because a report could be lost.
func (s *Store) tellAll(ctx context.Context, away map[int]bool) {
	if len(away) > 0 {
		calls, news := s.news(func(shard int) (ask, tell bool) {
			first := away[shard]
			delete(away, shard)
			return first, false
		})
		s.tell(ctx, calls, news, away)
	}
	calls, news := s.news(func(shard int) (ask, tell bool) { return !away[shard], !away[shard] })
	s.tell(ctx, calls, news, away)
}

// tellLast reports all unreported units.
func (s *Store) tellLast() {
	calls, news := s.news(func(int) (ask, tell bool) { return true, true })
	s.tell(context.Background(), calls, news, map[int]bool{})
}

// news returns the reports and reads for the selected shards, and drops unused pools.
func (s *Store) news(whether func(shard int) (ask, tell bool)) (calls []sluice.TakeCall, news []told) {
	for i := range s.tables {
		t := &s.tables[i]
		t.mu.Lock()
		for id, p := range t.pools {
			p.mu.Lock()
			at := s.clock()
			switch idle := at-p.asked > staleAfter && p.pins == 0; {
			case idle && p.own == 0 && p.flying == 0:
				delete(t.pools, id)
				s.pools.Add(-1)
			case p.own != 0 || p.asked > p.sent && p.back > 0:
				shard := s.shared.Shard(id.key)
				ask, tell := whether(shard)
				if !ask {
					break
				}
				c := sluice.Charge{Key: id.key, Plan: p.wide}
				if tell {
					c.Cost, c.Until = p.tell(at)
					c.Owe = c.Cost > 0 // it was allowed, even if it exceeds the limit
				}
				news = append(news, told{p, c.Cost, p.window, shard})
				calls = append(calls, sluice.TakeCall{Charges: []sluice.Charge{c}, Receipts: make([]sluice.Receipt, 1)})
			}
			p.mu.Unlock()
		}
		t.mu.Unlock()
	}
	return calls, news
}

// tell makes calls to the shared store, and adds the shards that do not answer to away.
func (s *Store) tell(ctx context.Context, calls []sluice.TakeCall, news []told, away map[int]bool) {
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
	defer cancel()
	sent := s.clock()
	s.takeEach(ctx, tellWithin, calls)
	back := s.clock()
	for i, n := range news {
		p, r, err := n.pool, &calls[i].Receipts[0], calls[i].Err
		odd := err != nil && len(unreadable(err)) > 0
		p.mu.Lock()
		switch {
		case err == nil && r.Origin == sluice.ByStore:
			p.told(n.cost, n.window, r, sent, back)
		case odd: // the state is unreadable, so nothing can count the report
			p.flying = 0
		case err == nil || notCharged(err):
			p.notTold(n.cost, n.window)
		default:
			p.flying = 0
		}
		p.mu.Unlock()
		if err != nil && !odd {
			away[n.shard] = true
		}
	}
}
