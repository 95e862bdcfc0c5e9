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
	// publishFor is the timeout for publishing a message, and publishTryFor the timeout of each attempt: on a
	// cluster, the library may choose any node, and that node may be silent.
	publishFor    = time.Second
	publishTryFor = publishFor / 4
	// subscribeFor is the timeout for the server's confirmation of a subscription.
	subscribeFor = 2 * time.Second
	// After a subscription was lost or refused, listen tries again after a random time, from half to one and a half of a
	// pause, which doubles up to longestPause.
	shortestPause = 50 * time.Millisecond
	longestPause  = 30 * time.Second
	// Refunds are gathered before they are published, so that a process sends at most 20 messages a second, and
	// fewer if many processes listen.
	gatherFor      = 50 * time.Millisecond
	gatherListener = 5 * time.Millisecond
	// A refund is not published if more than nearlyFull times its units are free afterwards, because the key was
	// probably not being denied.
	nearlyFull = 10
	// maxRemoved is how many states the messages of other processes can remove in a second: a quarter of the cache,
	// so that a client with permission to publish cannot empty the cache.
	maxRemoved = cacheSets * cacheWays / 4
)

// resets publishes the keys that this process has reset or given units back to, and removes the keys that other
// processes publish from the deny cache. So a remembered denial ends as soon as the message about a reset arrives.
// For a refund, it lasts up to gatherFor longer. If a message is lost, the change takes effect after cacheFor. On a
// cluster, a plain channel works, too: its nodes forward messages to each other.
type resets struct {
	store   *Store
	channel string
	codec   codec

	mu         sync.Mutex
	pending    []byte // states of the next message
	publishing bool
	gathered   map[string]struct{} // states with a refund, until they become pending
	size       int                 // bytes in gathered
	pause      time.Duration       // how long states are gathered

	stop  context.CancelFunc
	tried chan struct{} // closed when the first attempt to subscribe has succeeded or failed
	first sync.Once     // guards closing tried
	fault error         // error with which the server refused that attempt; set before tried is closed

	// These fields belong to the listening goroutine.
	since   int64 // start of the current second, by the clock of the deny cache
	removed int   // states removed since then
}

func newResets(s *Store, c Config) *resets {
	return &resets{store: s, channel: c.resetChannel(), codec: newCodec(c.HashKey, "resets"), tried: make(chan struct{})}
}

// resetChannel returns the channel for resets and refunds.
func (c Config) resetChannel() string { return c.prefix() + "resets" }

// announce publishes the states of resets in the background. It publishes the state of a refund after gatherFor, if the
// state was nearly full. It leaves out states that do not fit in the next message.
func (r *resets) announce(charges []sluice.Charge, receipts []sluice.Receipt) {
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

// publishPending starts publish, unless it is running. r.mu is held.
func (r *resets) publishPending() {
	if !r.publishing && r.store.track() {
		r.publishing = true
		go r.publish()
	}
}

// gather adds a state to the states that are published together after gatherFor.
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
		time.AfterFunc(max(gatherFor, r.pause), r.publishGathered)
	}
	r.gathered[string(state)] = struct{}{}
	r.size += len(state)
}

// publishGathered publishes the gathered states.
func (r *resets) publishGathered() {
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

// publish sends messages until no state is pending. It sends one message at a time, so that resets take only one
// connection from decisions.
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

// sendOnce publishes a message, and returns the number of subscribers.
func (r *resets) sendOnce(ctx context.Context, message string) (listeners int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTryFor)
	defer cancel()
	c := r.store.client
	return c.Do(ctx, c.B().Publish().Channel(r.channel).Message(message).Build()).AsInt64()
}

// start runs listen in the background. The store's Close waits until it has ended.
func (r *resets) start() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.store.running.Add(1)
	go func() {
		defer r.store.running.Done()
		r.listen(ctx)
	}()
}

// listen subscribes again after each end of the subscription, until ctx ends.
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
		// The random pause keeps instances that lost their server at the same time from returning together.
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

// receive subscribes, and handles messages until the subscription ends. It reports whether the server has confirmed
// the subscription.
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
	err = c.Receive(hooked, c.B().Subscribe().Channel(r.channel).Build(), r.receiveMessage)
	return answered.Load(), err
}

// unsubscribe ends the subscription on a connection of a borrowed client. Another store with that client and the
// same prefix loses its subscription, too, and renews it.
func (r *resets) unsubscribe(wire rueidis.CommandClient) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTryFor)
	defer cancel()
	_ = wire.Do(ctx, wire.B().Unsubscribe().Channel(r.channel).Build()).Error()
}

// attempted records the result of the first attempt to subscribe.
func (r *resets) attempted(err error) {
	r.first.Do(func() {
		if _, refused := rueidis.IsRedisErr(err); refused {
			r.fault = err
		}
		close(r.tried)
	})
}

// danger returns a sentence about the missing permission if the user is not allowed to subscribe.
func (r *resets) danger(ctx context.Context) (problem string, found bool) {
	select {
	case <-r.tried:
	case <-ctx.Done():
		return "", false
	}
	if r.fault == nil {
		return "", false
	}
	return fmt.Sprintf("resets and refunds by other instances take up to a second to reach this one, because SUBSCRIBE is denied (%v): allow the user +subscribe +publish &%s", r.fault, r.channel), true
}

// receiveMessage removes the states in a message from the deny cache. Any client with permission to publish can send
// anything, so the work is bounded. A message can only cause more calls of the server; it allows nothing.
func (r *resets) receiveMessage(m rueidis.PubSubMessage) {
	d := r.store.denyCache
	at := d.at(time.Now())
	if at-r.since > cacheFor {
		r.since, r.removed = at, 0
	}
	if r.removed >= maxRemoved || len(m.Message) > maxStates+codecOverhead {
		return
	}
	for states, _ := r.codec.open(m.Message, ""); len(states) > 0 && r.removed < maxRemoved; r.removed++ {
		fingerprint, key, rest, ok := cutState(states)
		if !ok {
			return
		}
		d.forgetRefunded(fingerprint, key, at)
		states = rest
	}
}
