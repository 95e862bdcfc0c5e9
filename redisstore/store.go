package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// maxCharges is the largest number of charges in one Take.
const maxCharges = maxCallCharges

// Store is a [sluice.Store] in Redis or Valkey. It is safe for concurrent use. Use one Store for the whole process:
// make it with [Open] or [New], and end it with Close.
//
// Take returns an [*Error] if it could not decide. If [Error.NotCharged] is false, the charges may have been
// counted nevertheless. Take never waits longer than its context.
type Store struct {
	client   rueidis.Client
	borrowed bool // the client belongs to the caller of New
	conns    *conns
	names    *naming
	hash     string // SHA-1 of the script
	cluster  bool
	siblings kernel.Siblings

	denyCache   *denyCache
	resets      *resets
	posts       codec
	batcher     *batcher // for a single server, and until the nodes are known
	nodes       *nodes   // nil on a single server
	requests    sync.Pool
	freeWorkers sync.Pool
	running     sync.WaitGroup

	closing sync.Mutex
	closed  atomic.Bool // set under closing
}

func newStore(client rueidis.Client, borrowed bool, conns *conns, c Config) *Store {
	sum := sha1.Sum([]byte(script))
	s := &Store{
		client:    client,
		borrowed:  borrowed,
		conns:     conns,
		names:     newNaming(c.prefix(), c.Cluster, c.HashKey),
		hash:      hex.EncodeToString(sum[:]),
		cluster:   c.Cluster,
		denyCache: newDenyCache(),
		posts:     newCodec(c.HashKey, "posts"),
	}
	s.requests.New = func() any { return &request{done: make(chan struct{}, 1)} }
	s.freeWorkers.New = func() any { return &worker{store: s, bySlot: make(map[uint16]*scriptCall)} }
	s.batcher = &batcher{store: s}
	if s.cluster {
		s.nodes = newNodes(s)
	}
	s.resets = newResets(s, c)
	s.resets.start()
	return s
}

func (s *Store) newWorker() *worker { return s.freeWorkers.Get().(*worker) }

// closeFor is how long Close waits for a server that does not answer, over connections of [Open].
const closeFor = time.Second

// Close refuses further Takes, and waits for the running ones. With a store of [Open], it waits at most about a
// second for a server that does not answer, and closes the connections. With a store of [New], it leaves the client
// open, and waits for as long as the client waits for the server.
func (s *Store) Close() error {
	s.closing.Lock()
	again := s.closed.Swap(true)
	s.closing.Unlock()
	if again {
		return nil
	}
	s.resets.stop()
	s.batcher.close()
	if s.nodes != nil {
		s.nodes.close()
	}
	if s.borrowed {
		s.running.Wait()
		return nil
	}
	impatient := time.AfterFunc(closeFor, func() { s.conns.close(func(*conn) bool { return true }) })
	s.running.Wait()
	impatient.Stop()
	s.client.Close()
	return nil
}

// track adds to running, for which Close waits. It reports false if the store is closed.
func (s *Store) track() bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed.Load() {
		return false
	}
	s.running.Add(1)
	return true
}

// Take implements [sluice.Store]. The time is the server's. One Take has at most 1024 charges. The error for more
// matches [sluice.ErrUsage].
//
// On a cluster, charges are committed together if their keys begin with the same hash tag, "{alice}". Other charges
// are taken one hash slot after the other, and given back if a later slot denies. In the meantime, they can cause
// the denial of another request that would fit without them. This is rare, because if a slot is known to deny, Take
// only peeks at the others.
//
// Charges that certainly do not fit, according to an answer of the server within the last second, are denied
// without another call. Their receipts have the Origin [sluice.ByDenyCache]: see the package's documentation.
//
// As soon as its context ends, Take returns, and does not use charges and receipts any more.
func (s *Store) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if done, err := s.recall(ctx, charges, receipts); done || err != nil {
		return err
	}
	return s.ask(ctx, charges, receipts)
}

// TakeWithin does what Take does, but fails if the server's answer takes longer than the given time. If this time is 0,
// TakeWithin makes no call, and decides only by remembered denials.
func (s *Store) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	done, err := s.recall(ctx, charges, receipts)
	switch {
	case done || err != nil:
		return err
	case wait <= 0:
		return errNoWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.ask(ctx, charges, receipts)
}

// recall checks the arguments of a Take, and reports whether it has decided the Take without the server.
func (s *Store) recall(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) (done bool, err error) {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return false, err
	}
	switch {
	case len(charges) == 0:
		return true, nil
	case len(charges) > maxCharges:
		return false, tooMany{}
	case ctx.Err() != nil:
		return false, &Error{NotSent, ctx.Err()}
	case s.closed.Load():
		return false, errClosed
	}
	return s.denyCache.answer(charges, receipts), nil
}

// ask calls the server to decide.
func (s *Store) ask(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	r := s.request(charges, false)
	if !s.cluster {
		return s.decide(ctx, s.batcher, r, charges, receipts)
	}
	if !r.oneSlot() {
		s.requests.Put(r)
		return s.takeAcrossSlots(ctx, charges, receipts)
	}
	return s.decide(ctx, s.nodes.batcher(r.slot), r, charges, receipts)
}

// request returns a request for charges.
func (s *Store) request(charges []sluice.Charge, look bool) *request {
	r := s.requests.Get().(*request)
	r.set(s.names, charges, look)
	return r
}

// decide queues r, a request for charges, waits for the answer, and puts r back into the pool.
func (s *Store) decide(ctx context.Context, b *batcher, r *request, charges []sluice.Charge, receipts []sluice.Receipt) error {
	// Other processes may learn of a refund, and take its units, before its answer arrives here.
	s.denyCache.forget(charges)
	if err := b.add(ctx.Done() == nil, r); err != nil {
		return err
	}
	return s.await(ctx, r, charges, receipts)
}

// await waits for r, which has been queued, and puts r back into the pool.
func (s *Store) await(ctx context.Context, r *request, charges []sluice.Charge, receipts []sluice.Receipt) error {
	lost, err := r.wait(ctx)
	if lost {
		s.denyCache.forget(charges)
		return err
	}
	if err == nil {
		err = r.receipts(receipts)
	}
	switch {
	case err != nil:
		s.denyCache.forget(charges)
	case s.denyCache.learn(r, charges, receipts):
		s.resets.announce(charges, receipts)
	}
	s.requests.Put(r)
	return err
}

var errNoWait = &Error{NotSent, context.DeadlineExceeded}

// tooMany is the error of a Take with too many charges. It matches [sluice.ErrUsage].
type tooMany struct{}

func (tooMany) Error() string { return "redisstore: more than 1024 charges in one Take" }

func (tooMany) Is(target error) bool { return target == sluice.ErrUsage }

// Shard returns the number of the master that counts a key. The masters of a cluster are numbered from 0. On a single
// server, Shard returns 0.
func (s *Store) Shard(key string) int {
	if !s.cluster {
		return 0
	}
	return s.nodes.batcher(s.names.slot(key)).index
}
