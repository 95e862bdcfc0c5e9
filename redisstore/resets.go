package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
)

const (
	// publishFor is how long it may take to tell of a reset, and publishTryFor each attempt: on
	// a cluster any node will do, and one of them may be silent.
	publishFor    = time.Second
	publishTryFor = publishFor / 4
	// subscribeFor is how long the server may take to confirm a subscription.
	subscribeFor = 2 * time.Second
	// One that was lost or refused is asked for again after a pause, which doubles.
	shortestPause = 50 * time.Millisecond
	longestPause  = 30 * time.Second
	// What is given back is gathered before it is published, so that it takes no more than 20
	// messages a second of a process, and where many listen, fewer.
	gatherFor      = 50 * time.Millisecond
	gatherListener = 5 * time.Millisecond
	// nearlyFull is the largest rest of a state, as a multiple of the refund, for which a refund is published. A
	// state with a larger rest has hardly denied requests before.
	nearlyFull = 10
	// maxHeard is how many states messages of others can remove in a second: a quarter of the cache, so that a
	// client with permission to publish cannot empty it.
	maxHeard = cacheSets * cacheWays / 4
)

// resets tells other processes what this one has reset or given back, and forgets what they have, so
// that a refusal that is remembered outlives a reset by no more than the way of a message, and units
// that are given back by gatherFor more. It is best
// effort: what is not heard of is noticed after cacheFor. A plain channel will do on a cluster,
// too: its nodes tell each other, whichever they are asked.
type resets struct {
	store   *Store
	channel string
	codec   codec

	mu         sync.Mutex
	pending    []byte // states that have still to be told
	publishing bool
	gathered   map[string]struct{} // states that have been given back to, until they are pending
	size       int                 // bytes in gathered
	pause      time.Duration       // how long they are gathered

	stop  context.CancelFunc
	tried chan struct{} // closed when the first attempt to subscribe has ended, either way
	first sync.Once     // closes it
	fault error         // why the server has refused that attempt; set before tried is closed

	// These are the listening goroutine's.
	since int64 // by the clock of the cache
	heard int   // states since then
}

func newResets(s *Store, c Config) *resets {
	return &resets{store: s, channel: c.resetChannel(), codec: newCodec(c.HashKey, "resets"), tried: make(chan struct{})}
}

// resetChannel is where resets are published.
func (c Config) resetChannel() string { return c.prefix() + "resets" }

// tell publishes, in the background, those of charges that have reset their state, and somewhat later
// those that have given back to a state that was nearly full. One that has no room in the next message
// is left out.
func (r *resets) tell(charges []sluice.Charge, receipts []sluice.Receipt) {
	for i := range charges {
		switch c := &charges[i]; {
		case c.Cost == sluice.All:
			r.add(c)
		case c.Cost < 0 && cacheable(c) && !c.Plan.Once && c.Plan.Decide(0, receipts[i]).Remaining/nearlyFull <= -c.Cost:
			r.gather(c)
		}
	}
}

func (r *resets) add(c *sluice.Charge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending)+maxStateHead+len(c.Key) > maxStates {
		return
	}
	r.pending = appendState(r.pending, c.Plan.Fingerprint, c.Key)
	r.publishPending()
}

// publishPending has pending published, unless it is being done. r.mu is held.
func (r *resets) publishPending() {
	if !r.publishing && r.store.track() {
		r.publishing = true
		go r.publish()
	}
}

// gather adds a state to those that are published when their time has come, each once.
func (r *resets) gather(c *sluice.Charge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size+maxStateHead+len(c.Key) > maxStates {
		return
	}
	state := appendState(make([]byte, 0, maxStateHead+len(c.Key)), c.Plan.Fingerprint, c.Key)
	if _, known := r.gathered[string(state)]; known {
		return
	}
	if len(r.gathered) == 0 {
		r.gathered = make(map[string]struct{})
		time.AfterFunc(max(gatherFor, r.pause), r.gatheredEnough)
	}
	r.gathered[string(state)] = struct{}{}
	r.size += len(state)
}

// gatheredEnough has what was gathered published.
func (r *resets) gatheredEnough() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for state := range r.gathered {
		if len(r.pending)+len(state) <= maxStates {
			r.pending = append(r.pending, state...)
		}
	}
	r.gathered, r.size = nil, 0
	r.publishPending()
}

// publish publishes until nothing is pending: one message at a time, so that resets take no more
// than one connection from decisions.
func (r *resets) publish() {
	defer r.store.running.Done()
	for {
		r.mu.Lock()
		states := r.pending
		r.pending = nil
		r.publishing = len(states) > 0
		r.mu.Unlock()
		if len(states) == 0 {
			return
		}
		r.send(r.codec.seal(states, ""))
	}
}

func (r *resets) send(message string) {
	ctx, cancel := context.WithTimeout(context.Background(), publishFor)
	defer cancel()
	for range maxStale {
		listeners, err := r.sendOnce(ctx, message)
		if err == nil {
			r.mu.Lock()
			r.pause = time.Duration(listeners) * gatherListener
			r.mu.Unlock()
		}
		if _, answered := rueidis.IsRedisErr(err); err == nil || answered || ctx.Err() != nil {
			return
		}
	}
}

// sendOnce returns how many listen.
func (r *resets) sendOnce(ctx context.Context, message string) (listeners int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTryFor)
	defer cancel()
	c := r.store.client
	return c.Do(ctx, c.B().Publish().Channel(r.channel).Message(message).Build()).AsInt64()
}

// start begins to listen. The store's Close waits for the end.
func (r *resets) start() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.store.running.Add(1)
	go func() {
		defer r.store.running.Done()
		r.listen(ctx)
	}()
}

// listen subscribes, again and again, until ctx ends.
func (r *resets) listen(ctx context.Context) {
	pause := shortestPause
	for {
		begin := time.Now()
		confirmed, err := r.receive(ctx)
		r.attempted(err)
		if confirmed && time.Since(begin) > time.Second {
			pause = shortestPause
		}
		select {
		case <-ctx.Done():
			return
		// Instances that have lost their server at the same time do not come back as one.
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

// receive hears messages until the subscription ends, or is not confirmed.
func (r *resets) receive(ctx context.Context) (confirmed bool, err error) {
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(subscribeFor, cancel)
	defer late.Stop()
	var answered atomic.Bool
	hooked := rueidis.WithOnSubscriptionHook(attempt, func(rueidis.PubSubSubscription) {
		late.Stop()
		r.attempted(nil)
		answered.Store(true)
	})
	hooked = rueidis.WithOnReceiveReturnHook(hooked, func(err error, wire rueidis.CommandClient) error {
		if ctx.Err() != nil && r.store.borrowed {
			r.unsubscribe(wire)
		}
		return err
	})
	c := r.store.client
	err = c.Receive(hooked, c.B().Subscribe().Channel(r.channel).Build(), r.hear)
	return answered.Load(), err
}

// unsubscribe restores a connection of a borrowed client. Another store over that client with the same prefix loses
// its subscription, too, and renews it.
func (r *resets) unsubscribe(wire rueidis.CommandClient) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTryFor)
	defer cancel()
	_ = wire.Do(ctx, wire.B().Unsubscribe().Channel(r.channel).Build()).Error()
}

// attempted notes how the first attempt to subscribe has ended.
func (r *resets) attempted(err error) {
	r.first.Do(func() {
		if _, refused := rueidis.IsRedisErr(err); refused {
			r.fault = err
		}
		close(r.tried)
	})
}

// danger returns what to change if the server does not let the user subscribe to resets.
func (r *resets) danger(ctx context.Context) (problem string, found bool) {
	select {
	case <-r.tried:
	case <-ctx.Done():
		return "", false
	}
	if r.fault == nil {
		return "", false
	}
	return fmt.Sprintf("resets and refunds by other instances take up to a second here, because SUBSCRIBE is denied (%v): allow the user +subscribe +publish &%s", r.fault, r.channel), true
}

// hear removes the states in a message. Its work is bounded, because any client with permission to publish can send
// anything: a message costs calls for the states that it names, and grants nothing.
func (r *resets) hear(m rueidis.PubSubMessage) {
	d := r.store.denyCache
	at := d.at(time.Now())
	if at-r.since > cacheFor {
		r.since, r.heard = at, 0
	}
	if r.heard >= maxHeard || len(m.Message) > maxStates+codecOverhead {
		return
	}
	for states, _ := r.codec.open(m.Message, ""); len(states) > 0 && r.heard < maxHeard; r.heard++ {
		fingerprint, key, rest, ok := cutState(states)
		if !ok {
			return
		}
		d.forgetHeard(fingerprint, key, at)
		states = rest
	}
}
