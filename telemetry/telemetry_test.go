package telemetry_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// No count is lost when many goroutines decide at once, while the policy changes and views are read.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 1500
	rules := func(burst int) *policy.Policy {
		return compile(t,
			policy.Rule{Name: "a", Key: []string{"header:X-User"}, Limit: fmt.Sprintf("%d/hour", burst)},
			policy.Rule{Name: "b", Limit: "1/hour", Shadow: true})
	}
	e := policy.NewEngine(memory.New(), rules(100))
	r := telemetry.Watch(e, telemetry.Config{Subjects: true})
	f := &telemetry.Fleet{Recorder: r}
	done := make(chan struct{})
	var others, deciding sync.WaitGroup
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			e.Swap(rules(100 + i%3))
			if err := e.SwapOverrides(nil); err != nil {
				t.Error(err)
			}
			f.View().Headline()
			r.Doors()
		}
	})
	var mu sync.Mutex
	var want telemetry.Counts
	for w := range workers {
		deciding.Go(func() {
			var counts telemetry.Counts
			for i := range each {
				d := e.Decide(t.Context(), &policy.Request{Door: fmt.Sprint("door", i%3), Header: http.Header{"X-User": {fmt.Sprint(w % 5)}}})
				if a := slices.IndexFunc(d.Results, func(r policy.Result) bool { return r.Rule == "a" }); d.Results[a].Allowed {
					counts[telemetry.Allow]++
				} else {
					counts[telemetry.Deny]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			want.Add(&counts)
		})
	}
	deciding.Wait()
	close(done)
	others.Wait()
	all := r.Rules()
	if all[0].Rule != "a" || all[0].Counts != want || all[1].Total() != workers*each {
		t.Errorf("%v and %v are counted, want %v, and a total of %d", all[0], all[1], want, workers*each)
	}
	var doors uint64
	for _, d := range r.Doors() {
		doors += d.Total()
	}
	if doors != workers*each {
		t.Errorf("the integrations have counted %d of %d", doors, workers*each)
	}
	fresh := &telemetry.Fleet{Recorder: r}
	if n := fresh.View().Rule("a").Traffic[telemetry.Day].Total; n != workers*each {
		t.Errorf("the view of rule a has %d of %d", n, workers*each)
	}
}

// Counting a decision allocates no memory.
func TestAllocations(t *testing.T) {
	for _, subjects := range []bool{false, true} {
		e := policy.NewEngine(memory.New(), compile(t,
			policy.Rule{Name: "a", Key: []string{"header:X-User"}, Limits: []string{"10/hour", "100/day"}},
			policy.Rule{Name: "b", Limit: "5/hour", Shadow: true}))
		telemetry.Watch(e, telemetry.Config{Subjects: subjects})
		req := &policy.Request{Door: "gateway", Header: http.Header{"X-User": {"alice"}}}
		var d policy.Decision
		if n := testkit.Allocations(func() { e.DecideInto(t.Context(), req, &d) }); n != 0 {
			t.Errorf("with subjects %v, %v allocations a decision", subjects, n)
		}
	}
}

func deny(t testing.TB, e *policy.Engine, n int) {
	for range n {
		e.Decide(t.Context(), &policy.Request{Door: "gateway"})
	}
}

// The series of a view equal the counts from a list of times, whatever the pauses between decisions.
func TestSeries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policy.NewEngine(memory.New(), compile(t, policy.Rule{Name: "a", Block: true}))
		r := telemetry.Watch(e, telemetry.Config{})
		f := running(t, &telemetry.Fleet{Recorder: r})
		random := rand.New(rand.NewPCG(2, 3))
		began := time.Now()
		var at []time.Time
		check := func() {
			now := time.Now()
			v := f.View()
			list := func(step time.Duration, most int) []telemetry.Counts {
				last := now.Unix() / int64(step.Seconds())
				n := min(last-began.Unix()/int64(step.Seconds())+1, int64(most))
				all := make([]telemetry.Counts, n)
				for _, a := range at {
					if i := n - 1 - (last - a.Unix()/int64(step.Seconds())); i >= 0 {
						all[i][telemetry.Deny]++
					}
				}
				return all
			}
			for _, s := range []telemetry.Series{v.All, v.Rules[0].Series} {
				if len(at) == 0 && len(s.Recent) == 0 {
					continue
				}
				if want := list(telemetry.Step, telemetry.RecentSteps); !slices.Equal(s.Recent, want) {
					t.Fatalf("after %v, the last hour is wrong: %d steps, want %d", now.Sub(began), len(s.Recent), len(want))
				}
				if want := list(telemetry.LongStep, telemetry.LongSteps); !slices.Equal(s.Days, want) {
					t.Fatalf("after %v, the last days are wrong: %d steps, want %d", now.Sub(began), len(s.Days), len(want))
				}
			}
		}
		pauses := []time.Duration{time.Second, 9 * time.Second, 11 * time.Second, time.Minute, 7 * time.Minute, 2 * time.Hour}
		for range 60 {
			// Samples are taken up to a second after the decisions that they count, so decisions must not be at the end
			// of a step.
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1500 * time.Millisecond)))
			if time.Now().Unix()%10 == 9 {
				time.Sleep(time.Second)
			}
			n := random.IntN(4)
			deny(t, e, n)
			for range n {
				at = append(at, time.Now())
			}
			time.Sleep(pauses[random.IntN(len(pauses))])
			check()
		}
	})
}

// Counting ten thousand rules and a flood with random names takes bounded memory.
func TestMemory(t *testing.T) {
	rules := make([]policy.Rule, 10_000)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprintf("rule%05d", i), Match: []string{fmt.Sprintf("/%d/{rest...}", i)}, Key: []string{"client_ip"}, Limit: "1/hour"}
	}
	e := policy.NewEngine(memory.New(), compile(t, rules...))
	before := testkit.Heap()
	r := telemetry.Watch(e, telemetry.Config{})
	f := &telemetry.Fleet{Recorder: r}
	random := rand.New(rand.NewPCG(4, 5))
	const requests = 50_000
	for i := range requests {
		e.Decide(t.Context(), &policy.Request{
			Door: fmt.Sprint("door", random.IntN(100)), Host: fmt.Sprint("host", random.Uint64()),
			Path: fmt.Sprintf("/%d/%d", i%len(rules), random.Uint64()), Peer: netip.AddrFrom4([4]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}),
		})
	}
	totals, doors := r.Rules(), r.Doors()
	if len(totals) != telemetry.MaxRules+1 || len(doors) != 17 {
		t.Errorf("%d rules and %d integrations have counts of their own", len(totals), len(doors))
	}
	var n uint64
	for _, c := range totals {
		n += c.Total()
	}
	if other := totals[len(totals)-1]; n != requests || other.Rule != telemetry.OtherRules || other.Total() != requests/10*9 {
		t.Errorf("%d of %d are counted, %v of them as other rules", n, requests, totals[len(totals)-1])
	}
	v := f.View()
	for _, c := range totals {
		if rule := v.Rule(c.Rule); rule == nil || sum(rule.Recent) != c.Counts {
			t.Fatalf("the view lacks the counts of %s: %v", c.Rule, c)
		}
	}
	series := telemetry.Counts{}
	own := 0
	for _, rule := range v.Rules {
		c := sum(rule.Recent)
		series.Add(&c)
		if len(rule.Recent) > 0 {
			own++
		}
	}
	if series.Total() != requests || own != 1001 {
		t.Errorf("%d of %d are in series, of %d rules", series.Total(), requests, own)
	}
	f, v = nil, nil
	if used := testkit.Heap() - before; used > 34<<20 {
		t.Errorf("telemetry takes %d MiB, want at most 34", used>>20)
	}
	runtime.KeepAlive(r)
	runtime.KeepAlive(e)
	// The counts of removed rules are freed.
	e.Swap(compile(t, policy.Rule{Name: "a", Block: true}))
	r.Rules()
	if used := testkit.Heap() - before; used > 2<<20 {
		t.Errorf("telemetry still takes %d MiB", used>>20)
	}
	runtime.KeepAlive(r)
}

// A view has the latest events. A flapping circuit breaker does not displace other events.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policy.NewEngine(memory.New(), compile(t))
		r := telemetry.Watch(e, telemetry.Config{Instance: "me", Version: "v1"})
		var unavailable atomic.Int64
		f := running(t, &telemetry.Fleet{Recorder: r, Store: func() telemetry.Store {
			return telemetry.Store{Kind: "redis", Shards: 3, Unavailable: int(unavailable.Load())}
		}})
		if v := f.View(); len(v.Events) != 1 || v.Events[0].Kind != "start" || v.Events[0].Instance != "me" {
			t.Errorf("the first events are %v", v.Events)
		}
		time.Sleep(1500 * time.Millisecond)
		unavailable.Store(2)
		time.Sleep(2 * time.Second)
		unavailable.Store(0)
		time.Sleep(2 * time.Second)
		v := f.View()
		var kinds []string
		for _, e := range v.Events {
			kinds = append(kinds, e.Kind)
		}
		if strings.Join(kinds, " ") != "circuit circuit start" || !strings.Contains(v.Events[1].Text, "2 of 3 shards") {
			t.Errorf("the events are %v", v.Events)
		}
		for i := range 300 { // a flapping circuit breaker does not displace other events
			r.Note("circuit", fmt.Sprint(i, strings.Repeat("é", 1000)))
			time.Sleep(time.Second)
		}
		v = f.View()
		if len(v.Events) != 100 || !strings.HasPrefix(v.Events[0].Text, "299é") || len(v.Events[0].Text) > 500 || !strings.HasSuffix(v.Events[0].Text, "é") {
			t.Errorf("of 300 events, %d are kept, the first %v", len(v.Events), v.Events[0])
		}
		if last := v.Events[99]; last.Kind != "start" {
			t.Errorf("the oldest event is %v", last)
		}
		for i := range 200 {
			r.Note("reload", fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		if v = f.View(); len(v.Events) != 100 || v.Events[0].Text != "199" {
			t.Errorf("of 200 events, %d are kept, the first %v", len(v.Events), v.Events[0])
		}
	})
}
