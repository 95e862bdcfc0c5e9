// Package fleet is how several instances would have counted what one store counts exactly: each by
// itself, each by itself with an exchange now and then, by leases, or together but for an outage.
//
// A [Store] is a store for a replay. It decides what its instances would, on the log's clock, and what
// they let pass that one store would not have is what the way of counting costs.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/replay"
)

// Config says how the fleet counts: in a store that all share, unless it is Alone or has a Sync.
type Config struct {
	// Nodes is how many instances there are. Each request goes to one of them, by chance but the same
	// in every run, as behind a load balancer that does not look at clients.
	Nodes int
	// Alone has each instance count for itself, and know nothing of the others.
	Alone bool
	// Sync has each count for itself and tell the others every so often what it has let pass.
	Sync time.Duration
	// Away reports whether the shared store is away at a time in microseconds since the Unix epoch; it
	// never is if nil. Then each rule's on_error decides, and a local share is one of as many as there
	// are instances. Instances that count for themselves exchange nothing then.
	Away func(now int64) bool
	// Lease makes what an instance leases with from the store that all share; nil is none, and each asks
	// it every time.
	Lease func(shared Shared) Leaser
}

// Shared is the store that all share, as those see it who lease from it.
type Shared interface {
	TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
}

// Leaser decides by what it has reserved in the shared store, as lease.Playback does.
type Leaser interface {
	Shared
	Due() int64        // when it does something by itself
	Advance(now int64) // does that
}

// Store is such a fleet. It is for one goroutine, and for times that do not go back.
type Store struct {
	c        Config
	newStore func() replay.Store
	shared   replay.Store
	nodes    []node
	turn     uint64 // how many requests there were
	synced   int64  // the number of the last exchange

	audit  replay.Store // has counted what has passed, exactly; nil without leases
	leases replay.Leases
	due    int64 // when an instance that leases does something by itself
}

// node is one instance.
type node struct {
	own   replay.Store // what it has counted, and heard of; in an outage, its shares
	since []taken      // that the others have not heard of
	begun map[key]bool // shares that have begun where the shared store was
	lease Leaser       // nil is none
}

type key struct {
	key         string
	fingerprint uint64
}

// taken is units that were taken.
type taken struct {
	key  string
	plan *sluice.Plan
	cost int64
	owed bool // they were due in any case
	at   int64
}

// took returns what a charge has taken, and whether that is anything to tell of.
func took(c *sluice.Charge, cut, at int64) (t taken, any bool) {
	t = taken{c.Key, c.Plan, c.Cost - cut, c.Owe, at}
	if any = t.cost != 0 && shared(c.Plan); any {
		t.key = strings.Clone(c.Key)
	}
	return t, any
}

// New returns a fleet whose stores newStore makes.
func New(c Config, newStore func() replay.Store) *Store {
	s := &Store{c: c, newStore: newStore, shared: newStore(), nodes: make([]node, max(1, c.Nodes))}
	for i := range s.nodes {
		s.nodes[i] = s.newNode()
	}
	if c.Lease != nil {
		s.audit = newStore()
	}
	return s
}

func (s *Store) newNode() node {
	n := node{own: s.newStore(), begun: map[key]bool{}}
	if s.c.Lease != nil {
		n.lease = s.c.Lease((*lessor)(s))
	}
	return n
}

// Evicted is how many states that were not empty there was no room for.
func (s *Store) Evicted() int64 {
	n := s.shared.Evicted()
	for i := range s.nodes {
		n += s.nodes[i].own.Evicted()
	}
	return n
}

// errAway is what rules with "on_error: deny" hear in an outage.
var errAway = errors.New("fleet: the shared store is away")

// TakeAt takes as the instance would that the request has come to.
func (s *Store) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	// What was due before an outage is done before it, whoever asks next.
	for s.c.Lease != nil && s.due <= now {
		s.advance(now)
	}
	n := &s.nodes[s.balance()]
	away := s.c.Away != nil && s.c.Away(now)
	switch {
	case s.c.Alone:
		return n.own.TakeAt(ctx, now, charges, receipts)
	case s.c.Sync > 0:
		if turn := now / s.c.Sync.Microseconds(); turn != s.synced && !away {
			s.synced = turn
			if err := s.exchange(ctx, now); err != nil {
				return err
			}
		}
		return n.takeNoting(ctx, now, charges, receipts)
	case away:
		return s.takeShare(ctx, n, now, charges, receipts)
	}
	if err := s.writeBack(ctx); err != nil {
		return err
	}
	if n.lease != nil {
		return s.takeLeased(ctx, n, now, charges, receipts)
	}
	return s.shared.TakeAt(ctx, now, charges, receipts)
}

// balance returns the instance that the next request goes to.
func (s *Store) balance() int {
	s.turn++
	x := s.turn * 0x9e3779b97f4a7c15 // a multiple of the golden ratio, mixed: as good as chance
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	hi, _ := bits.Mul64(x, uint64(len(s.nodes)))
	return int(hi)
}

// shared reports whether instances tell each other what they have counted under p: not penalties, nor
// what is asked once, nor places in flight, which belong to those who hold them.
func shared(p *sluice.Plan) bool {
	return p.Kernel != sluice.Lock && p.Kernel != sluice.InFlight && !p.Once
}

// takeNoting takes, and notes what was taken for the next exchange.
func (n *node) takeNoting(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := n.own.TakeAt(ctx, now, charges, receipts)
	if err != nil || !sluice.Admitted(charges, receipts) {
		return err
	}
	for i := range charges {
		if c, r := &charges[i], &receipts[i]; r.Fits || c.Owe {
			if t, any := took(c, r.Cut, now); any {
				n.since = append(n.since, t)
			}
		}
	}
	return nil
}

// exchange tells every instance what the others have let pass.
func (s *Store) exchange(ctx context.Context, now int64) error {
	for i := range s.nodes {
		for j := range s.nodes {
			if i == j {
				continue
			}
			for _, t := range s.nodes[i].since {
				if err := add(ctx, s.nodes[j].own, now, t); err != nil {
					return err
				}
			}
		}
	}
	for i := range s.nodes {
		clear(s.nodes[i].since)
		s.nodes[i].since = s.nodes[i].since[:0]
	}
	return nil
}

// add counts what has passed elsewhere: all of it, or as much as there is room for or is owed.
func add(ctx context.Context, store replay.Store, now int64, t taken) error {
	c, r := [1]sluice.Charge{{Key: t.key, Plan: t.plan, Cost: t.cost, Owe: t.owed}}, [1]sluice.Receipt{}
	if err := store.TakeAt(ctx, now, c[:], r[:]); err != nil || r[0].Fits || t.owed {
		return err
	}
	if c[0].Cost = t.plan.Decide(0, r[0]).Remaining; c[0].Cost == 0 {
		return nil
	}
	return store.TakeAt(ctx, now, c[:], r[:])
}

// takeShare decides by on_error, and by the instance's share where that says so. As in package
// failover, a share begins where the shared store was, and what may pass uses it, too.
func (s *Store) takeShare(ctx context.Context, n *node, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	parts := make([]sluice.Share, len(charges))
	asked := make([]sluice.Charge, len(charges))
	for i := range charges {
		c := &charges[i]
		if c.OnError == sluice.Deny && !c.Shadow {
			return errAway
		}
		parts[i] = c.Plan.Share(int64(len(s.nodes)))
		cost := parts[i].Cost(c.Cost)
		if c.Owe && c.Cost > 0 {
			cost = parts[i].Owes(c.Cost)
		}
		asked[i] = sluice.Charge{Key: c.Key, Plan: parts[i].Plan, Cost: cost, Owe: c.Owe, Shadow: c.Shadow || c.OnError != sluice.Local, Place: c.Place}
		if err := s.begin(ctx, n, now, c, parts[i]); err != nil {
			return err
		}
	}
	if err := n.own.TakeAt(ctx, now, asked, receipts); err != nil {
		return err
	}
	passes := sluice.Admitted(asked, receipts)
	for i := range charges {
		c, r := &charges[i], &receipts[i]
		cut := parts[i].Units(r.Cut)
		if passes && (r.Fits || c.Owe) && c.Cost > 0 {
			if t, any := took(c, cut, now); any {
				n.since = append(n.since, t)
			}
		}
		*r = parts[i].Receipt(c.Cost, *r)
		r.Cut = cut
		if r.Origin = sluice.ByLocalShare; c.OnError != sluice.Local {
			r.Fits, r.Origin = true, sluice.ByOnError
		}
	}
	return nil
}

// begin has a share begin where the shared store was when it went away.
func (s *Store) begin(ctx context.Context, n *node, now int64, c *sluice.Charge, part sluice.Share) error {
	id := key{c.Key, part.Plan.Fingerprint}
	if n.begun[id] || !shared(c.Plan) {
		return nil
	}
	id.key = strings.Clone(c.Key)
	n.begun[id] = true
	var r [1]sluice.Receipt
	if err := s.shared.TakeAt(ctx, now, []sluice.Charge{{Key: id.key, Plan: c.Plan}}, r[:]); err != nil {
		return err
	}
	owed := c.Plan.Owed(r[0])
	used := part.Used(c.Plan.Decide(0, r[0]).Remaining) + owed
	if used <= 0 {
		return nil
	}
	return add(ctx, n.own, now, taken{id.key, part.Plan, used, owed > 0, now})
}

// writeBack tells the shared store, once it is back, what has passed meanwhile, and when: what has drained
// since does not count any more, as it would not if it was told the moment the store came back. What was leased
// before is over.
func (s *Store) writeBack(ctx context.Context) error {
	var since []taken
	for i := range s.nodes {
		if n := &s.nodes[i]; len(n.begun) > 0 {
			since = append(since, n.since...)
			*n = s.newNode()
		}
	}
	slices.SortStableFunc(since, func(a, b taken) int { return cmp.Compare(a.at, b.at) })
	for _, t := range since {
		if err := add(ctx, s.shared, t.at, t); err != nil {
			return err
		}
		if s.audit == nil {
			continue
		}
		if err := add(ctx, s.audit, t.at, t); err != nil {
			return err
		}
	}
	return nil
}
