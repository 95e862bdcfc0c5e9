package failover_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// watched calls take at a steady rate, open loop, until stop is closed.
func steadily(interval time.Duration, stop chan struct{}, take func()) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(interval):
				wg.Go(take)
			}
		}
	})
	return &wg
}

// until waits for a condition in steps of a millisecond, and returns how long it took.
func until(t *testing.T, most time.Duration, what string, condition func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !condition() {
		if time.Since(start) > most {
			t.Fatalf("%s: not after %v", what, most)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// The circuit opens within a second of the fault and is closed within two of its end,
// at any rate of calls, for any kind of fault, for callers with any patience. In between
// nothing waits, and nothing but probes is sent.
func TestCircuit(t *testing.T) {
	for name, f := range map[string]fault{"frozen": frozen, "refused": refused, "not sent": unsent} {
		for _, interval := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond} {
			for _, patience := range []time.Duration{time.Hour, 5 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s every %v for %v", name, interval, patience), func(t *testing.T) {
					var log lines
					logger := logTo(&log)
					bubble(t, failover.Config{Logger: logger}, func(t *testing.T, sv *server, s *failover.Store) {
						testCircuit(t, sv, s, f, interval, patience)
						if n := log.count(); n != 2 || !strings.Contains(log.all[0], "away") || !strings.Contains(log.all[1], "used again") {
							t.Errorf("%d lines of log, want one for each change: %q", n, log.all)
						}
					})
				})
			}
		}
	}
}

func testCircuit(t *testing.T, sv *server, s *failover.Store, f fault, interval, patience time.Duration) {
	p := plan(t, "100000/minute", sluice.TokenBucket)
	var slow atomic.Int64
	var open atomic.Bool
	stop := make(chan struct{})
	wg := steadily(interval, stop, func() {
		wasOpen, start := open.Load(), time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Take(ctx, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
		if took := time.Since(start); took > failover.DefaultDeadline || wasOpen && took != 0 {
			slow.Add(1)
		}
	})
	time.Sleep(3 * time.Second)
	if st := s.Status(); st.Degraded() || st.Local > 0 || st.Shared == 0 {
		t.Errorf("before the fault: %+v", st)
	}

	sv.set(f)
	// The clock begins with the first call that can notice, be it a look.
	before := sv.calls.Load() + sv.probes.Load()
	until(t, 2*time.Second, "a call", func() bool { return sv.calls.Load()+sv.probes.Load() > before })
	until(t, time.Second, "opens", func() bool { return s.Status().Degraded() })
	open.Store(true)
	calls, probes := sv.calls.Load(), sv.probes.Load()
	time.Sleep(10 * time.Second)
	if n := sv.calls.Load() - calls; n != 0 {
		t.Errorf("%d calls have been sent while the circuit was open", n)
	}
	if n := sv.probes.Load() - probes; n < 10 || n > 30 {
		t.Errorf("%d probes in 10 s, want about 20", n)
	}
	open.Store(false)

	sv.set(nil)
	until(t, 2*time.Second, "closes", func() bool { return !s.Status().Degraded() })
	local := s.Status().Local
	time.Sleep(5 * time.Second)
	calls = sv.calls.Load()
	time.Sleep(3 * time.Second)
	if st := s.Status(); sv.calls.Load() == calls || st.Owing != 0 || st.Degraded() {
		t.Errorf("after the fault (%d were local): %+v", local, st)
	}
	close(stop)
	wg.Wait()
	if n := slow.Load(); n > 0 {
		t.Errorf("%d decisions took longer than they may", n)
	}
}

// A slow store is not an absent one. Calls take a time around the latency.
func TestLatency(t *testing.T) {
	for _, latency := range []time.Duration{5, 20, 40} {
		t.Run(fmt.Sprint(latency*time.Millisecond), func(t *testing.T) {
			bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
				sv.set(func(ctx context.Context, _ []sluice.Charge, take func() error) error {
					return answerAfter(ctx, jitter(latency*time.Millisecond, 0.2), take)
				})
				p := plan(t, "1000000/minute", sluice.TokenBucket)
				stop := make(chan struct{})
				wg := steadily(time.Millisecond, stop, func() { take(t, s, "k", p, sluice.Local) })
				for range 30 {
					time.Sleep(time.Second)
					if s.Status().Degraded() {
						t.Error("the circuit is open")
					}
				}
				close(stop)
				wg.Wait()
				if st := s.Status(); st.Shared < 29000 || st.Local*100 > st.Shared {
					t.Errorf("more than 1 %% of fallback: %+v", st)
				}
			})
		})
	}
}

func answerAfter(ctx context.Context, d time.Duration, take func() error) error {
	select {
	case <-time.After(d):
		return take()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1)))
}

// A store that is silent for a moment, however many call it then, is not away.
func TestHiccup(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "1000000/minute", sluice.TokenBucket)
		stop := make(chan struct{})
		wg := steadily(time.Millisecond, stop, func() { take(t, s, "k", p, sluice.Local) })
		for range 5 {
			time.Sleep(2 * time.Second)
			sv.set(frozen)
			time.Sleep(200 * time.Millisecond)
			sv.set(nil)
			if s.Status().Degraded() {
				t.Error("the circuit is open")
			}
		}
		close(stop)
		wg.Wait()
		if st := s.Status(); st.TimedOut < 500 {
			t.Errorf("only %d calls have met a silent store", st.TimedOut)
		}
	})
}

// One answer in ten is lost after the charge. Nothing is charged twice for it, and the
// circuit does not open.
func TestLostAnswers(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		var lost atomic.Int64
		sv.set(func(ctx context.Context, charges []sluice.Charge, take func() error) error {
			err := take()
			if !strings.HasPrefix(charges[0].Key, "failover/") && rand.IntN(10) == 0 {
				lost.Add(1)
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		})
		const decisions = 10000
		p := plan(t, "20000/day", sluice.FixedWindow)
		var wg sync.WaitGroup
		for range decisions {
			wg.Go(func() {
				if !take(t, s, "k", p, sluice.Local).Fits {
					t.Error("refused below the limit")
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		if n := sv.used(t, "k", p); n != decisions {
			t.Errorf("%d units are charged for %d decisions", n, decisions)
		}
		if st := s.Status(); st.Degraded() || st.Local != uint64(lost.Load()) || st.Local < 800 || st.Owing != 0 {
			t.Errorf("%d answers lost: %+v", lost.Load(), st)
		}
	})
}

// The state does not follow a store that comes and goes.
func TestFlapping(t *testing.T) {
	for _, period := range []time.Duration{300, 100, 50} {
		t.Run(fmt.Sprint(period*time.Millisecond), func(t *testing.T) {
			var log lines
			logger := logTo(&log)
			bubble(t, failover.Config{Logger: logger}, func(t *testing.T, sv *server, s *failover.Store) {
				p := plan(t, "1000000/minute", sluice.TokenBucket)
				stop := make(chan struct{})
				wg := steadily(time.Millisecond, stop, func() { take(t, s, "k", p, sluice.Local) })
				time.Sleep(time.Second)
				for end := time.Now().Add(time.Minute); time.Now().Before(end); {
					sv.set(refused)
					time.Sleep(period * time.Millisecond)
					sv.set(nil)
					time.Sleep(period * time.Millisecond)
				}
				// A minute has 100 comings and goings of 300 ms.
				if n := log.count(); n < 1 || n > 10 {
					t.Errorf("%d changes of state in a minute", n)
				}
				until(t, 2*time.Second, "closes", func() bool { return !s.Status().Degraded() })
				close(stop)
				wg.Wait()
			})
		})
	}
}

// A server that answers reads and refuses writes is not back.
func TestProbesWrite(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		cut(t, sv, s, refused)
		sv.set(func(_ context.Context, charges []sluice.Charge, take func() error) error {
			for _, c := range charges {
				if c.Cost != 0 {
					return errAway
				}
			}
			return take()
		})
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if !s.Status().Degraded() {
				t.Fatal("the circuit is closed")
			}
		}
	})
}

// shards is a store of two parts: keys of the second begin with "2".
type shards struct {
	prompt
	away [2]atomic.Bool
}

func (s *shards) Shard(key string) int {
	if strings.HasPrefix(key, "2") || strings.HasPrefix(key, "failover/") && strings.HasSuffix(key, "7") {
		return 1
	}
	return 0
}

func (s *shards) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for _, c := range charges {
		if s.away[s.Shard(c.Key)].Load() {
			return frozen(ctx, nil, nil)
		}
	}
	return s.prompt.TakeWithin(ctx, wait, charges, receipts)
}

// A part that fails takes nothing with it but the requests that need it.
func TestShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := &shards{prompt: prompt{newServer()}}
		s := failover.New(sh, failover.Config{Logger: quiet()})
		defer s.Close()
		p := plan(t, "1000000/minute", sluice.TokenBucket)
		take(t, s, "1", p, sluice.Local)
		take(t, s, "2", p, sluice.Local)
		if st := s.Status(); len(st.Shards) != 2 || st.Local != 0 {
			t.Fatalf("status %+v", st)
		}
		sh.away[1].Store(true)
		stop := make(chan struct{})
		wg := steadily(10*time.Millisecond, stop, func() {
			charge(t, s, sluice.Charge{Key: "1", Plan: p, Cost: 1}, sluice.Charge{Key: "2", Plan: p, Cost: 1})
		})
		// With requests that touch both it takes the probes to tell which it is.
		until(t, time.Second, "opens", func() bool { return s.Status().Shards[1].Away })
		for range 1000 {
			start := time.Now()
			if r := take(t, s, "1", p, sluice.Local); r.Origin.Degraded() || time.Since(start) != 0 {
				t.Fatalf("the part that is there: %+v after %v", r, time.Since(start))
			}
			if r := take(t, s, "2", p, sluice.Local); !r.Origin.Degraded() || time.Since(start) != 0 {
				t.Fatalf("the part that is not: %+v after %v", r, time.Since(start))
			}
			time.Sleep(10 * time.Millisecond)
			if s.Status().Shards[0].Away {
				t.Fatal("the other part's circuit is open")
			}
		}
		close(stop)
		wg.Wait()
		sh.away[1].Store(false)
		until(t, 2*time.Second, "closes", func() bool { return !s.Status().Degraded() })
		until(t, 5*time.Second, "settles", func() bool { return s.Status().Owing == 0 })
		if r := take(t, s, "2", p, sluice.Local); r.Origin.Degraded() {
			t.Errorf("the part that is back: %+v", r)
		}
	})
}

// beating is a server that counts heartbeats.
type beating struct {
	prompt
	others atomic.Int64
	ids    sync.Map
	fail   atomic.Bool
}

func (b *beating) Heartbeat(_ context.Context, id string) (int, error) {
	if b.fail.Load() {
		return 0, errAway
	}
	b.ids.Store(id, true)
	n := int(b.others.Load())
	b.ids.Range(func(any, any) bool { n++; return true })
	return n, nil
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := &beating{prompt: prompt{newServer()}}
		one := failover.New(sv, failover.Config{Logger: quiet()})
		defer one.Close()
		two := failover.New(sv, failover.Config{Logger: quiet()})
		defer two.Close()
		set := failover.New(sv, failover.Config{Logger: quiet(), Instances: 7})
		defer set.Close()
		time.Sleep(2 * time.Second)
		for s, want := range map[*failover.Store]int{one: 3, two: 3, set: 7} {
			if n := s.Status().Instances; n != want {
				t.Errorf("%d instances, want %d", n, want)
			}
		}
		sv.others.Store(2)
		time.Sleep(2 * time.Second)
		// An outage is noticed without any request, and the number stays.
		sv.fail.Store(true)
		sv.set(refused)
		until(t, 3*time.Second, "opens", func() bool { return one.Status().Degraded() })
		if n := one.Status().Instances; n != 5 {
			t.Errorf("%d instances, want 5", n)
		}
		p := plan(t, "40/day", sluice.FixedWindow)
		for i := range 20 {
			if r := take(t, one, "k", p, sluice.Local); r.Fits != (i < 8) {
				t.Errorf("take %d of a share of 8: %+v", i, r)
			}
		}
	})
}

// A store that was restarted counts the instance first that is heard of first. The others
// are not gone: only a count that stays low for five seconds is believed.
func TestHeartbeatsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := &beating{prompt: prompt{newServer()}}
		sv.others.Store(3)
		s := failover.New(sv, failover.Config{Logger: quiet()})
		defer s.Close()
		want := func(n int, when string) {
			t.Helper()
			if got := s.Status().Instances; got != n {
				t.Errorf("%s: %d instances, want %d", when, got, n)
			}
		}
		time.Sleep(2 * time.Second)
		want(4, "at first")
		sv.others.Store(0)
		time.Sleep(3 * time.Second)
		want(4, "forgotten")
		sv.fail.Store(true)
		time.Sleep(10 * time.Second)
		sv.fail.Store(false)
		time.Sleep(3 * time.Second)
		want(4, "forgotten in an outage")
		sv.others.Store(4)
		time.Sleep(2 * time.Second)
		want(5, "one more")
		sv.others.Store(1)
		time.Sleep(4 * time.Second)
		want(5, "three less for a while")
		time.Sleep(4 * time.Second)
		want(2, "three less for good")
	})
}

// stepped is a server whose clock was set back.
type stepped struct {
	prompt
	back atomic.Int64 // µs
}

func (s *stepped) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := s.prompt.TakeWithin(ctx, wait, charges, receipts)
	for i := range receipts {
		receipts[i].Now -= s.back.Load()
	}
	return err
}

// What a server says after its clock was set back is remembered as well.
func TestSeenOnAnEarlierClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := &stepped{prompt: prompt{newServer()}}
		s := failover.New(sv, failover.Config{Logger: quiet()})
		defer s.Close()
		p := plan(t, "10/day", sluice.TokenBucket)
		take(t, s, "k", p, sluice.Local)
		sv.back.Store(time.Hour.Microseconds())
		for range 8 {
			take(t, s, "k", p, sluice.Local)
		}
		cut(t, sv.server, s, refused)
		for n := range 3 {
			if r := take(t, s, "k", p, sluice.Local); r.Fits != (n < 1) || !r.Origin.Degraded() {
				t.Errorf("take %d after 9 of 10: %+v", n, r)
			}
		}
	})
}

func TestManyShardsAreBounded(t *testing.T) {
	sv := wild{prompt{newServer()}}
	s := failover.New(sv, failover.Config{Deadline: time.Minute, Logger: quiet()})
	defer s.Close()
	p := plan(t, "10/day", sluice.FixedWindow)
	for _, key := range []string{"low", "high"} {
		if r := take(t, s, key, p, sluice.Local); r.Origin.Degraded() || !r.Fits {
			t.Errorf("%s: %+v", key, r)
		}
	}
	if n := len(s.Status().Shards); n > 256 {
		t.Errorf("%d shards", n)
	}
}

// wild numbers its parts as it likes.
type wild struct{ prompt }

func (wild) Shard(key string) int {
	if key == "low" {
		return -5
	}
	return 1 << 40
}

// A store that nobody asks is looked at all the same, whether instances are counted or not.
func TestIdle(t *testing.T) {
	bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *server, s *failover.Store) {
		for range 3 {
			sv.set(frozen)
			until(t, 3*time.Second, "away", func() bool { return s.Status().Degraded() })
			sv.set(nil)
			until(t, 3*time.Second, "back", func() bool { return !s.Status().Degraded() })
			time.Sleep(10 * time.Second)
		}
		probes := sv.probes.Load()
		time.Sleep(100 * time.Second)
		if n := sv.probes.Load() - probes; n > 200 {
			t.Errorf("%d probes in 100 s of an idle store", n)
		}
	})
}

// Where only heartbeats fail, one line says so, and one that they are back.
func TestHeartbeatsFail(t *testing.T) {
	var log lines
	synctest.Test(t, func(t *testing.T) {
		sv := &beating{prompt: prompt{newServer()}}
		sv.others.Store(2)
		s := failover.New(sv, failover.Config{Logger: logTo(&log)})
		defer s.Close()
		time.Sleep(10 * time.Second)
		for range 2 {
			sv.fail.Store(true)
			time.Sleep(time.Minute)
			sv.fail.Store(false)
			time.Sleep(time.Minute)
		}
		// An outage is not said twice.
		sv.fail.Store(true)
		sv.set(refused)
		time.Sleep(time.Minute)
		sv.set(nil)
		sv.fail.Store(false)
		time.Sleep(time.Minute)
	})
	text := strings.Join(log.all, "")
	for what, want := range map[string]int{"cannot be counted": 2, "instances=3": 4, "counted again": 2, "=\"shared store is away": 1, "used again": 1} {
		if n := strings.Count(text, what); n != want {
			t.Errorf("%d lines say %q, want %d:\n%s", n, what, want, text)
		}
	}
}

// With a longer deadline a store that hangs is found away later, as documented.
func TestLongDeadline(t *testing.T) {
	for _, deadline := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second} {
		for _, busy := range []bool{true, false} {
			t.Run(fmt.Sprint(deadline, busy), func(t *testing.T) {
				bubble(t, failover.Config{Deadline: deadline}, func(t *testing.T, sv *server, s *failover.Store) {
					p := plan(t, "1000/second", sluice.TokenBucket)
					most := 1500*time.Millisecond + 5*deadline + 200*time.Millisecond // the next look, and five probes
					ask := func() { time.Sleep(5 * time.Millisecond) }
					var callers sync.WaitGroup
					if busy {
						most = deadline + 500*time.Millisecond
						ask = func() {
							callers.Go(func() { take(t, s, "k", p, sluice.Local) })
							time.Sleep(5 * time.Millisecond)
						}
					}
					for range 1000 {
						ask()
					}
					sv.set(frozen)
					start := time.Now()
					for !s.Status().Degraded() && time.Since(start) < time.Minute {
						ask()
					}
					took := time.Since(start)
					if took > most || took < deadline {
						t.Errorf("found away after %v, at most %v is documented", took, most)
					}
					callers.Wait()
				})
			})
		}
	}
}

// refusing refuses one key by memory.
type refusing struct{ prompt }

func (r refusing) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if charges[0].Key == "remembered" {
		receipts[0] = sluice.Receipt{Now: time.Now().UnixMicro(), Used: 1, Origin: sluice.ByDenyCache}
		return nil
	}
	return r.prompt.TakeWithin(ctx, wait, charges, receipts)
}

// What is refused by memory does not make a store look alive that is away.
func TestRefusedIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer()
		s := failover.New(refusing{prompt{sv}}, failover.Config{Logger: quiet()})
		defer s.Close()
		sv.set(unsent)
		p := plan(t, "1/day", sluice.FixedWindow)
		failures := 0
		for !s.Status().Degraded() && failures < 100 {
			for range 9 {
				if r := take(t, s, "remembered", p, sluice.Allow); r.Origin != sluice.ByDenyCache || r.Fits {
					t.Errorf("%+v", r)
				}
			}
			take(t, s, "k", p, sluice.Allow)
			failures++
		}
		if st := s.Status(); failures > 20 || st.Shared != uint64(9*failures) || st.Local != uint64(failures) {
			t.Errorf("away after %d failures: %+v", failures, st)
		}
		if r := take(t, s, "remembered", p, sluice.Allow); !r.Origin.Degraded() || !r.Fits {
			t.Errorf("on_error does not decide while the store is away: %+v", r)
		}
	})
}

// A server whose every call hangs refuses by what it remembers all the same, however many
// calls there are.
func TestRefusedNeedsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer()
		s := failover.New(refusing{prompt{sv}}, failover.Config{MaxCalls: 1, Logger: quiet()})
		defer s.Close()
		sv.set(frozen)
		p := plan(t, "1/day", sluice.FixedWindow)
		var hanging sync.WaitGroup
		hanging.Go(func() { take(t, s, "k", p, sluice.Allow) })
		synctest.Wait()
		if r := take(t, s, "remembered", p, sluice.Allow); r.Origin != sluice.ByDenyCache {
			t.Errorf("beside a call that hangs: %+v", r)
		}
		if r := take(t, s, "other", p, sluice.Allow); r.Origin != sluice.ByOnError {
			t.Errorf("another call: %+v", r)
		}
		hanging.Wait()
		if st := s.Status(); st.Shared != 1 || st.Overflow != 1 || st.TimedOut != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// half answers for its second part, and remembers what its first has refused.
type half struct{ shards }

func (h *half) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := h.shards.TakeWithin(ctx, wait, charges[len(charges)-1:], receipts[len(charges)-1:])
	if len(charges) == 2 && err == nil {
		receipts[0] = sluice.Receipt{Now: receipts[1].Now, Used: 1, Origin: sluice.ByDenyCache}
	}
	return err
}

// Of a request that is answered from memory in part, only the parts that were asked are alive.
func TestRefusedInPartIsASignOfLifeOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &half{shards{prompt: prompt{newServer()}}}
		s := failover.New(h, failover.Config{Logger: quiet()})
		defer s.Close()
		p := plan(t, "1000000/day", sluice.FixedWindow)
		fail := func(key string) {
			h.set(unsent)
			take(t, s, key, p, sluice.Allow)
			h.set(nil)
		}
		for range 30 { // with these, less than half of the calls of the second part fail
			charge(t, s, sluice.Charge{Key: "1", Plan: p, Cost: 1}, sluice.Charge{Key: "2", Plan: p, Cost: 1})
		}
		for range 20 {
			fail("2")
			fail("1")
		}
		if st := s.Status(); !st.Shards[0].Away || st.Shards[1].Away {
			t.Errorf("status %+v", st)
		}
	})
}
