package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// TakeEach implements [sluice.EachTaker]. It makes one call to the server for up to 1024 charges. If the list has
// more, it makes further calls, one after the other. On a cluster, it makes one call for each hash slot, and sends
// all calls to a master together; Takes with several slots are decided after the others, in no particular order. A
// Take that is denied from memory is decided before the list is sent. So the receipts of its other limits may lack
// the units of earlier Takes in the list.
func (s *Store) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	var lanes []*lane
	var across []*sluice.TakeCall
	for i := range calls {
		c := &calls[i]
		var done bool
		if done, c.Err = s.recall(ctx, c.Charges, c.Receipts); done || c.Err != nil {
			continue
		}
		r := s.request(c.Charges, false)
		if s.cluster && !r.oneSlot() {
			s.requests.Put(r)
			across = append(across, c)
			continue
		}
		s.denyCache.forget(c.Charges) // see decide
		b := s.batcher
		if s.cluster {
			b = s.nodes.batcher(r.slot)
		}
		lanes = addTo(lanes, b, flight{r, c})
	}
	stays := ctx.Done() == nil && len(lanes) == 1
	for waiting := len(lanes) > 0; waiting; {
		waiting = false
		for _, l := range lanes {
			l.send(stays)
		}
		for _, l := range lanes {
			l.wait(ctx, s)
			waiting = waiting || len(l.flights) > 0
		}
	}
	s.takeEachAcross(ctx, across)
}

// TakeEachWithin does what TakeEach does, but fails if the server's answers take longer than the given time: see
// [Store.TakeWithin].
func (s *Store) TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	if wait <= 0 {
		for i := range calls {
			c := &calls[i]
			c.Err = s.TakeWithin(ctx, 0, c.Charges, c.Receipts)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	s.TakeEach(ctx, calls)
}

// flight is a Take in the list of a TakeEach, and its request.
type flight struct {
	r    *request
	call *sluice.TakeCall
}

// lane has the calls of a TakeEach that go to one server.
type lane struct {
	b       *batcher
	flights []flight // calls that have not returned
	sent    int      // number of flights that are on their way
	err     error    // error of sending
}

func addTo(lanes []*lane, b *batcher, f flight) []*lane {
	for _, l := range lanes {
		if l.b == b {
			l.flights = append(l.flights, f)
			return lanes
		}
	}
	return append(lanes, &lane{b: b, flights: []flight{f}})
}

// send queues as many flights as fit in one call of the server.
func (l *lane) send(stays bool) {
	var requests []*request
	charges := 0
	for _, f := range l.flights {
		if charges += len(f.r.charges); charges > maxCallCharges {
			break
		}
		f.r.follows = len(requests) > 0
		requests = append(requests, f.r)
	}
	if l.sent = len(requests); l.sent == 0 {
		return
	}
	weight := 0
	for i := l.sent - 1; i >= 0; i-- {
		weight += len(requests[i].charges)
		requests[i].weight = weight
	}
	l.err = l.b.add(stays, requests...)
}

// wait waits for the flights that were sent.
func (l *lane) wait(ctx context.Context, s *Store) {
	for _, f := range l.flights[:l.sent] {
		if f.call.Err = l.err; l.err == nil {
			f.call.Err = s.await(ctx, f.r, f.call.Charges, f.call.Receipts)
		}
	}
	l.flights = l.flights[l.sent:]
}

// acrossAtOnce is how many Takes with several slots a TakeEach makes at the same time.
const acrossAtOnce = 64

func (s *Store) takeEachAcross(ctx context.Context, calls []*sluice.TakeCall) {
	var all sync.WaitGroup
	free := make(chan struct{}, acrossAtOnce)
	for _, c := range calls {
		free <- struct{}{}
		all.Go(func() {
			c.Err = s.takeAcrossSlots(ctx, c.Charges, c.Receipts)
			<-free
		})
	}
	all.Wait()
}
