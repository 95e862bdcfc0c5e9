package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

const (
	fleetSize  = 8
	fleetKeys  = 1000
	fleetLimit = 5 // a day: what one limiter would admit during the test
	hotKeys    = 4
	hotRate    = 5 // a second
	hotBurst   = 50
	queueRate  = 20 // a second
	queueSize  = 40
)

// fleetKinds are rules that admit exactly fleetLimit requests of a client.
var fleetKinds = []string{"token_bucket", "sliding_window_counter", "sliding_window_log", "fixed_window"}

// A store that is slow because the machine is busy must not be taken for one that is away.
var patientStore = []string{"--store-timeout", patience.String(), "--require-store"}

func fleetPolicy() string {
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for _, kind := range fleetKinds {
		fmt.Fprintf(&b, "  - {name: %s, match: /%[1]s, key: [header:X-Client], limit: %d/day, algorithm: %[1]s, on_error: deny}\n", kind, fleetLimit)
	}
	fmt.Fprintf(&b, "  - {name: hot, match: /hot, key: [header:X-Client], limit: %d/second burst %d, on_error: deny}\n", hotRate, hotBurst)
	fmt.Fprintf(&b, "  - {name: queue, match: /queue, limit: %d/second burst %d, algorithm: leaky_bucket, on_error: deny}\n", queueRate, queueSize)
	return b.String()
}

// arrivals is an upstream that remembers when what came through.
type arrivals struct {
	mu sync.Mutex
	at map[string][]time.Time // by path and client
}

func (a *arrivals) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	key := r.URL.Path + " " + r.Header.Get("X-Client")
	a.at[key] = append(a.at[key], now)
}

func (a *arrivals) of(path, client string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at[path+" "+client])
}

// fleetAsker sends requests to a fleet.
type fleetAsker struct {
	t      *testing.T
	client *http.Client
}

func newAsker(t *testing.T) *fleetAsker {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &fleetAsker{t, &http.Client{Transport: transport}}
}

// ask reports whether a request was let through. It may be called by any goroutine.
func (a *fleetAsker) ask(url string, header ...string) bool {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		a.t.Error(err)
		return false
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := a.client.Do(r)
	if err != nil {
		a.t.Error(err)
		return false
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		a.t.Error(err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		a.t.Errorf("%s: %s", url, resp.Status)
	}
	return resp.StatusCode == http.StatusOK
}

// Any number of processes over one Redis admit what one would, to the unit.
func TestFleet(t *testing.T) {
	redis := redistest.Start(t)
	upstream := &arrivals{at: map[string][]time.Time{}}
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	awayFromMidnight(t)
	args := append([]string{"--policy", write(t, "policy.yaml", fleetPolicy()), "--upstream", server.URL, "--store", redis.URL()}, patientStore...)
	fleet := make([]*gateway, fleetSize)
	for i := range fleet {
		fleet[i] = serve(t, args...)
	}
	t.Run("count", func(t *testing.T) { testFleetCount(t, fleet, upstream, redis) })
	t.Run("queue", func(t *testing.T) { testFleetQueue(t, fleet, upstream) })
}

// tally is what is known of a refilling key from outside.
type tally struct {
	firstSent, firstAnswered time.Time
	lastAnswered             time.Time
	lastRefusedSent          time.Time
}

func (y *tally) add(sent, answered time.Time, admitted bool) {
	if y.firstSent.IsZero() || sent.Before(y.firstSent) {
		y.firstSent = sent
	}
	if y.firstAnswered.IsZero() || answered.Before(y.firstAnswered) {
		y.firstAnswered = answered
	}
	if answered.After(y.lastAnswered) {
		y.lastAnswered = answered
	}
	if !admitted && sent.After(y.lastRefusedSent) {
		y.lastRefusedSent = sent
	}
}

// fleetLoad is what the workers of a fleet share.
type fleetLoad struct {
	*fleetAsker
	until time.Time
	mu    sync.Mutex
	hot   [hotKeys]tally
}

func testFleetCount(t *testing.T, fleet []*gateway, upstream *arrivals, redis *redistest.Server) {
	took := 4 * time.Second
	if os.Getenv("SLUICE_LONG") != "" {
		took = time.Minute
	}
	l := &fleetLoad{fleetAsker: newAsker(t), until: time.Now().Add(took)}
	admitted := make([]atomic.Int64, fleetKeys)
	var workers sync.WaitGroup
	for i, g := range fleet {
		// Every gateway asks for every key at least once, so that each key is asked for
		// more often than its limit, however slow the machine is.
		order, next := rand.New(rand.NewPCG(1, uint64(i))).Perm(fleetKeys), new(atomic.Int64)
		for range 3 {
			workers.Go(func() {
				for {
					n := next.Add(1) - 1
					if n >= fleetKeys && time.Now().After(l.until) {
						return
					}
					key := order[n%fleetKeys]
					if l.ask(g.url+"/"+fleetKinds[key%len(fleetKinds)], "X-Client", fmt.Sprint("client-", key)) {
						admitted[key].Add(1)
					}
					if n%2 == 0 {
						l.askHot(g, int(n/2)%hotKeys)
					}
				}
			})
		}
	}
	workers.Wait()
	for key := range admitted {
		kind := fleetKinds[key%len(fleetKinds)]
		through := len(upstream.of("/"+kind, fmt.Sprint("client-", key)))
		if n := int(admitted[key].Load()); n != fleetLimit || through != fleetLimit {
			t.Errorf("%s, key %d: %d were admitted and %d came through, want %d", kind, key, n, through, fleetLimit)
		}
	}
	for key := range l.hot {
		checkHot(t, key, l.hot[key], len(upstream.of("/hot", fmt.Sprint("hot-", key))))
	}
	// The premise: it was this server that counted.
	var states int
	if fmt.Sscan(redis.Do("DBSIZE"), &states); states < fleetKeys+hotKeys {
		t.Errorf("the server has %d keys, want at least %d", states, fleetKeys+hotKeys)
	}
}

func (l *fleetLoad) askHot(g *gateway, key int) {
	sent := time.Now()
	admitted := l.ask(g.url+"/hot", "X-Client", fmt.Sprint("hot-", key))
	answered := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hot[key].add(sent, answered, admitted)
}

// checkHot holds what a refilling bucket let through to what it has to: all of the burst
// and of what refilled between the first request and the last that was refused, less than
// one unit that was not whole; and nothing beyond that and what refilled until the end.
func checkHot(t *testing.T, key int, y tally, through int) {
	t.Helper()
	if y.lastRefusedSent.IsZero() {
		t.Fatalf("hot key %d was never above its limit", key)
	}
	least := hotBurst + hotRate*y.lastRefusedSent.Sub(y.firstAnswered).Seconds() - 1
	most := hotBurst + hotRate*y.lastAnswered.Sub(y.firstSent).Seconds()
	t.Logf("hot key %d: %d came through, of %.2f to %.2f", key, through, least, most)
	if n := float64(through); n < least || n > most {
		t.Errorf("hot key %d: %d came through, want %.2f to %.2f", key, through, least, most)
	}
}

// The gateways hold requests of one queue until it is their turn, whichever holds them.
func testFleetQueue(t *testing.T, fleet []*gateway, upstream *arrivals) {
	a := newAsker(t)
	const requests = 4 * queueSize // the last come before the queue has been emptied three times
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for i := range requests {
		all.Go(func() {
			if a.ask(fleet[i%len(fleet)].url + "/queue") {
				admitted.Add(1)
			} else {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	through := upstream.of("/queue", "")
	slices.SortFunc(through, time.Time.Compare)
	if n := len(through); n < queueSize || n != int(admitted.Load()) || refused.Load() == 0 {
		t.Fatalf("%d came through, %d were admitted and %d refused of %d, into a queue of %d", n, admitted.Load(), refused.Load(), requests, queueSize)
	}
	for i, at := range through {
		if turn := time.Duration(i) * time.Second / queueRate; at.Sub(start) < turn {
			t.Errorf("number %d came through after %v, and its turn is after %v", i, at.Sub(start), turn)
		}
	}
}

// Ten clients of one server are given turns that are exactly as far apart as the limit says.
func TestFleetTurns(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	plan, err := sluice.NewPlan(sluice.Limit{Count: 1, Period: time.Second, Burst: 40, Algorithm: sluice.LeakyBucket})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var turns []time.Duration // on the clock of the server
	var all sync.WaitGroup
	for range 10 {
		store, err := redisstore.Open(t.Context(), redis.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		for range 4 {
			all.Go(func() {
				charges := []sluice.Charge{{Key: "queue", Plan: plan, Cost: 1}}
				receipts := make([]sluice.Receipt, 1)
				if err := store.Take(t.Context(), charges, receipts); err != nil || !receipts[0].Fits {
					t.Errorf("%+v, %v", receipts[0], err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				turns = append(turns, time.Duration(receipts[0].Now)*time.Microsecond+plan.Decide(1, receipts[0]).Delay)
			})
		}
	}
	all.Wait()
	slices.Sort(turns)
	if len(turns) != 40 {
		t.Fatalf("%d turns", len(turns))
	}
	for i, turn := range turns {
		if want := turns[0] + time.Duration(i)*time.Second; turn != want {
			t.Errorf("turn %d is %v behind the first, want %v", i, turn-turns[0], want-turns[0])
		}
	}
}

// A gateway before a cluster says that it cannot charge all rules in one step.
func saysApart(r record) bool { return strings.Contains(r.Msg, "one after the other") }

// Rules with one hash tag are charged in one step on a cluster: those that are refused
// never hold, even for a moment, what others could have.
func TestFleetCluster(t *testing.T) {
	t.Parallel()
	const users, each, tenants = 10, 3, 6
	cluster := redistest.StartCluster(t, 3, 0)
	upstream := &arrivals{at: map[string][]time.Time{}}
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	awayFromMidnight(t)
	policy := fmt.Sprintf(`version: 1
rules:
  - {name: tenant, key: [header:X-Tenant], together: [header:X-Tenant], limit: %d/day, on_error: deny}
  - {name: user, key: [header:X-Tenant, header:X-Client], together: [header:X-Tenant], limit: %d/day, on_error: deny}
`, users*each, each)
	args := append([]string{"--policy", write(t, "policy.yaml", policy), "--upstream", server.URL, "--store", cluster.URL()}, patientStore...)
	fleet := []*gateway{serve(t, args...), serve(t, args...)}
	for _, g := range fleet {
		g.mu.Lock()
		if slices.ContainsFunc(g.logs, saysApart) {
			t.Errorf("rules of one tag are said to be charged apart:\n%s", &g.raw)
		}
		g.mu.Unlock()
	}
	apart := write(t, "apart.yaml", "version: 1\nrules: [{name: a, limit: 9/day, on_error: deny}, {name: b, limit: 9/day, on_error: deny}]\n")
	said := serve(t, append(args, "--policy", apart)...).await("it says what is apart", saysApart)
	if !strings.Contains(said.Problem, `rule "b"`) || !strings.Contains(said.Problem, "with a;") {
		t.Errorf("it says %+v", said)
	}
	a := newAsker(t)
	var modest, greedy sync.WaitGroup
	serving, served := context.WithCancel(t.Context())
	defer served()
	for tenant := range tenants {
		ask := func(user, i int) {
			a.ask(fleet[i%len(fleet)].url, "X-Tenant", fmt.Sprint("t", tenant), "X-Client", fmt.Sprintf("t%d-u%d", tenant, user))
		}
		// The first user asks for ever more. What the tenant may is just enough for all.
		for range 4 {
			greedy.Go(func() {
				for i := 0; i < each || serving.Err() == nil; i++ {
					ask(0, i)
				}
			})
		}
		for user := 1; user < users; user++ {
			modest.Go(func() {
				for i := range each {
					ask(user, i)
				}
			})
		}
	}
	modest.Wait()
	served()
	greedy.Wait()
	for tenant := range tenants {
		for user := range users {
			if n := len(upstream.of("/", fmt.Sprintf("t%d-u%d", tenant, user))); n != each {
				t.Errorf("tenant %d, user %d: %d came through, want %d", tenant, user, n, each)
			}
		}
	}
	// The premise: the tenants are on several masters.
	with := 0
	for _, s := range cluster.Masters {
		if s.Do("KEYS", "*tenant/*") != "" {
			with++
		}
	}
	if with < 2 {
		t.Errorf("the tenants' counts are on %d masters", with)
	}
}
