package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
)

// maxCharges is the most charges of one Take.
const maxCharges = flightCharges

// Store is a [sluice.Store] whose states are kept by Redis or Valkey. It is safe for
// concurrent use. Make one per process with [Open], and end it with Close.
//
// Take returns an [*Error] if it could not decide, whose Kind says whether the charges
// may have been counted all the same. It never waits longer than its context.
type Store struct {
	client  rueidis.Client
	names   *naming
	hash    string // of the script
	cluster bool

	single      *lane  // but on a cluster
	nodes       *nodes // of a cluster
	requests    sync.Pool
	freeFlights sync.Pool
	flights     sync.WaitGroup

	closing sync.Mutex
	closed  bool
}

func newStore(client rueidis.Client, c Config) *Store {
	sum := sha1.Sum([]byte(script))
	s := &Store{
		client:  client,
		names:   newNaming(c.prefix(), c.Cluster, c.HashKey),
		hash:    hex.EncodeToString(sum[:]),
		cluster: c.Cluster,
	}
	s.requests.New = func() any { return &request{done: make(chan struct{}, 1)} }
	s.freeFlights.New = func() any { return &flight{store: s, bySlot: make(map[uint16]*call)} }
	s.single = &lane{store: s}
	if s.cluster {
		s.nodes = newNodes(s)
	}
	return s
}

func (s *Store) newFlight() *flight { return s.freeFlights.Get().(*flight) }

// Close refuses further Takes, waits for the requests that are under way, and closes
// the connections.
func (s *Store) Close() error {
	s.closing.Lock()
	again := s.closed
	s.closed = true
	s.closing.Unlock()
	if again {
		return nil
	}
	s.single.close()
	if s.nodes != nil {
		s.nodes.close()
	}
	s.flights.Wait()
	s.client.Close()
	return nil
}

// begin counts something that Close has to wait for, unless the store is closed.
func (s *Store) begin() bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if !s.closed {
		s.flights.Add(1)
	}
	return !s.closed
}

// Take implements [sluice.Store]. The time is the server's. One Take has at most 1024
// charges.
//
// On a cluster, charges are committed together if their keys begin with the same hash
// tag, "{alice}". Others are taken one hash slot after the other, and given back if
// a later one refuses: another caller may be refused in between who would not have
// been. What is given back after the edge of a window is taken off the new one.
func (s *Store) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	switch {
	case len(charges) == 0:
		return nil
	case len(charges) > maxCharges:
		return errTooMany
	case ctx.Err() != nil:
		return &Error{NotSent, ctx.Err()}
	}
	r := s.request(charges, false)
	if !s.cluster {
		return s.decide(ctx, s.single, r, receipts)
	}
	if !r.oneSlot() {
		s.requests.Put(r)
		return s.takeApart(ctx, charges, receipts)
	}
	return s.decide(ctx, s.nodes.lane(r.slot), r, receipts)
}

// request returns a request for charges.
func (s *Store) request(charges []sluice.Charge, look bool) *request {
	r := s.requests.Get().(*request)
	r.set(s.names, charges, look)
	return r
}

// decide has r decided, and puts it back.
func (s *Store) decide(ctx context.Context, l *lane, r *request, receipts []sluice.Receipt) error {
	if err := l.add(r, ctx.Done() == nil); err != nil {
		return err
	}
	lost, err := r.wait(ctx)
	if lost {
		return err
	}
	if err == nil {
		err = r.receipts(receipts)
	}
	s.requests.Put(r)
	return err
}

var errTooMany = errors.New("redisstore: more than 1024 charges in one Take")

// Prompt says that Take returns as soon as its context ends, and leaves charges and
// receipts alone from then on.
func (s *Store) Prompt() {}

// Shard returns which master of a cluster counts a key, as a small number, and 0 on
// a single server.
func (s *Store) Shard(key string) int {
	if !s.cluster {
		return 0
	}
	return s.nodes.lane(s.names.slot(key)).index
}
