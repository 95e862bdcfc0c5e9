package pace

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The memory of a Pacer is bounded, whatever servers there are and whatever they send.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var p Pacer
	for i := range 20_000 {
		to := Target{Peer: uint64(i % 300), Route: uint64(i)}
		pass, err := p.Wait(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		p.Tell(pass, Answer{States: []State{{Name: fmt.Sprint(i), Left: 1, Reset: time.Hour}}, Refused: i%3 == 0})
	}
	if len(p.peers) > maxPeers {
		t.Errorf("%d peers", len(p.peers))
	}
	for _, one := range p.peers {
		if len(one.limits) > maxLimits || len(one.routes) > maxRoutes || len(one.underWay) > 0 {
			t.Errorf("%d limits, %d routes and %d requests in flight", len(one.limits), len(one.routes), len(one.underWay))
		}
	}
}

// Requests that are in flight for a long time, such as long polls, were counted by the server long ago, so they do not
// delay requests for the remaining units.
func TestLongRequestsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		to := Target{Peer: 1, Route: 1}
		for range 10 {
			if _, err := p.Wait(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		for left := int64(4); left >= 0; left-- {
			pass, err := p.Wait(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			p.Tell(pass, Answer{States: []State{{Name: "a", Left: left, Reset: time.Minute}}})
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("five requests took %v", took)
		}
	})
}

// Requests in flight that the server has not counted are subtracted from the remaining units, in whatever order
// responses arrive.
func TestAnswersThatOvertake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		to := Target{Peer: 1, Route: 1}
		var passes []*Pass
		for range 3 {
			pass, err := p.Wait(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			passes = append(passes, pass)
		}
		time.Sleep(20 * time.Millisecond)
		for i, left := range []int64{0, 2, 1} { // the request that was counted last is answered first
			p.Tell(passes[i], Answer{States: []State{{Name: "a", Left: left, Reset: time.Minute}}})
		}
		began := time.Now()
		p.Random = func(time.Duration) time.Duration { return 0 }
		p.MaxWait = time.Hour
		if _, err := p.Wait(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("waited %v, want a minute: no units remained", waited)
		}
	})
}
