// Package incident has an hour of traffic for tests. A script with a seed generates the traffic: several thousand
// clients, three paying customers behind one address, a scraper, an attack on logins, a slow upstream, a Redis that is
// repeatedly unavailable, two changes of the policy, and a block. The hour is played through an engine, a store and a
// recorder in the virtual time of [testing/synctest]. The Books record every request with its address, API key, login
// and decision.
//
//	synctest.Test(t, func(t *testing.T) {
//		h := incident.Start(t)
//		h.PlayTo(5 * time.Minute)
//		view := h.Fleet.View()
//		…
//	})
//
// A test of a page that shows the hour may leave virtual time, because a View does not change.
package incident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// The times and rates of the script. Times count from the start of the hour. The process starts Lead before the hour.
const (
	Lead = 30 * time.Minute // the time with only ordinary traffic

	// At ScraperBegins, one address starts to request ScraperRate pages per second. From ScraperBlocked on, the
	// rule per-address blocks the address, which continues to send requests.
	ScraperBegins  = 0 * time.Minute
	ScraperBlocked = 52 * time.Minute
	ScraperRate    = 25
	// The second scraper begins after the first is blocked, and is slower.
	SecondBegins = 54 * time.Minute
	SecondRate   = 12

	// While logins are attacked, a password of each name in Attacked is guessed LoginRate times per second, from
	// some two thousand addresses. This is a hundred times the limit. Each of the five names in Mistyped enters a
	// wrong password eight times within eight seconds.
	LoginBegins, LoginEnds = 10 * time.Minute, 25 * time.Minute
	LoginRate              = 10

	// The upstream Reports answers a request after SlowFor instead of a tenth of a second.
	SlowBegins, SlowEnds = 33 * time.Minute, 38 * time.Minute
	SlowFor              = 8 * time.Second

	// The shared store is unavailable for FlapEvery, then available for FlapEvery, and so on.
	FlapBegins, FlapEnds = 44 * time.Minute, 48 * time.Minute
	FlapEvery            = 20 * time.Second

	// At Raised, the limits of per-address and of login change. At Added, a rule is added.
	Raised = 28 * time.Minute
	Added  = 41 * time.Minute

	tick = 100 * time.Millisecond
)

// The upstreams of the script: one for reports, and one for all other requests.
const (
	Reports = "http://reports.test"
	App     = "http://app.test"
)

// The subjects of the script.
const (
	Scraper = "203.0.113.7"
	Second  = "203.0.113.99"
	Office  = "198.51.100.20" // the address of the three customers in Hurt
)

var (
	Attacked = []string{"mary", "lucy", "bobby", "kathy"}
	Mistyped = []string{"amy", "Henry", "judy", "Sydney", "timothy"}
	// Hurt has the customers of the tier pro behind the address Office, with their requests per second. They never
	// reach the limit of their tier.
	Hurt = map[string]float64{"k-pro-acme": 3.5, "k-pro-bolt": 3, "k-pro-crux": 2.5}
)

// HurtKeys returns the API keys of the customers in Hurt.
func HurtKeys() []string { return sortedKeys(Hurt) }

// The limits of the rules, in requests per minute.
const (
	AddressLimit, AddressRaised = 300, 480 // of per-address
	LoginLimit, LoginRaised     = 6, 8
)

// Document returns the policy in force at a time of the hour.
func Document(at time.Duration) policy.Document {
	address, login := AddressLimit, LoginLimit
	if at >= Raised {
		address, login = AddressRaised, LoginRaised
	}
	doc := policy.Document{
		Tiers: policy.Tiers{Subject: "api_key", Default: "free"},
		Rules: []policy.Rule{
			{Name: "login", Match: []string{"POST /login"}, Key: []string{"body:username"}, Limit: fmt.Sprintf("%d/minute", login)},
			{Name: "per-address", Key: []string{"client_ip"}, Limit: fmt.Sprintf("%d/minute", address)},
			{Name: "api", Match: []string{"/api/{rest...}"}, Key: []string{"api_key"}, Missing: "skip", Limit: "60/minute", Tiers: map[string]policy.Limits{
				"pro": {"600/minute"}, "enterprise": {"6000/minute"},
			}},
			{Name: "reports", Match: []string{"/reports/{rest...}"}, Key: []string{"const:reports"}, InFlight: policy.InFlight{Most: 20}},
		},
	}
	if at >= Added {
		doc.Rules = append(doc.Rules, policy.Rule{Name: "export", Match: []string{"/export"}, Key: []string{"api_key"}, Limit: "10/minute"})
	}
	for key := range Hurt {
		doc.Subjects = append(doc.Subjects, policy.TierSubject{Subject: key, Tier: "pro"})
	}
	slices.SortFunc(doc.Subjects, func(a, b policy.TierSubject) int { return cmp.Compare(a.Subject, b.Subject) })
	for i := range 200 {
		doc.Subjects = append(doc.Subjects, policy.TierSubject{Subject: client(i).key, Tier: "pro"})
	}
	for i := range 5 {
		doc.Subjects = append(doc.Subjects, policy.TierSubject{Subject: client(200 + i).key, Tier: "enterprise"})
	}
	return doc
}

// clients is the number of ordinary clients. In addition, chattyClients clients send slightly more than their limit.
const (
	clients       = 3000
	chattyClients = 3
)

type ordinary struct {
	address netip.Addr
	key     string
	tier    string
	name    string
}

// client returns the ordinary client with an index.
func client(i int) ordinary {
	c := ordinary{netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 1}), fmt.Sprintf("k-%05d-of-a-client", i), "free", fmt.Sprintf("user%d@example.com", i)}
	switch {
	case i < 200:
		c.tier = "pro"
	case i < 205:
		c.tier = "enterprise"
	}
	return c
}

// Hour plays the traffic.
type Hour struct {
	Engine   *policy.Engine
	Store    *failover.Store
	Recorder *telemetry.Recorder
	Fleet    *telemetry.Fleet
	Books    *Books

	t       testing.TB
	reports *telemetry.UpstreamStats
	app     *telemetry.UpstreamStats
	shared  *flapping
	began   time.Time // the start of the hour
	random  *rand.Rand
	actors  []*actor
	acts    []act
	ticks   int
	ends    []ending // the ends of reports in flight, the earliest first
	request policy.Request
}

// actor sends requests of one kind.
type actor struct {
	who      string
	from, to time.Duration
	rate     float64 // requests per second
	due      float64
	next     func(h *Hour, q *policy.Request) sent
}

// act is an act of an operator at a time.
type act struct {
	at time.Duration
	do func()
}

type ending struct {
	at       time.Duration
	decision policy.Decision
	call     telemetry.UpstreamCall
}

// Start starts the script in the test's synctest bubble. Virtual time starts Lead before the hour.
func Start(t testing.TB) *Hour {
	t.Helper()
	time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(3*time.Hour - Lead)))
	h := &Hour{t: t, Books: &Books{}, random: rand.New(rand.NewPCG(2, 47)), began: time.Now().Add(Lead)}
	h.Books.began = h.began
	h.shared = &flapping{store: memory.New()}
	h.Store = failover.New(h.shared, failover.Config{Instances: 1, Logger: slog.New(slog.DiscardHandler)})
	p, err := policy.Compile(Document(-Lead))
	if err != nil {
		t.Fatal(err)
	}
	h.Engine = policy.NewEngine(h.Store, p)
	h.reports, h.app = telemetry.NewUpstreamStats(Reports), telemetry.NewUpstreamStats(App)
	upstreams := []*telemetry.UpstreamStats{h.reports, h.app}
	h.Recorder = telemetry.Watch(h.Engine, telemetry.Config{Subjects: true, Instance: "a", Version: "test", Upstreams: upstreams})
	h.Fleet = &telemetry.Fleet{Recorder: h.Recorder, Store: h.seen}
	ctx, stop := context.WithCancel(t.Context())
	go h.Fleet.Run(ctx)
	t.Cleanup(func() {
		stop()
		h.Store.Close()
	})
	h.script()
	return h
}

// seen returns the state of the store.
func (h *Hour) seen() telemetry.Store {
	s := telemetry.Store{Kind: "redis", Shards: 1}
	if h.Store.Status().Degraded() {
		s.Unavailable = 1
	}
	return s
}

// script sets the senders of requests and the acts of operators.
func (h *Hour) script() {
	const ever = 2 * time.Hour
	add := func(who string, from, to time.Duration, rate float64, next func(*Hour, *policy.Request) sent) {
		h.actors = append(h.actors, &actor{who: who, from: from, to: to, rate: rate, next: next})
	}
	add("clients", -Lead, ever, 30, func(h *Hour, q *policy.Request) sent {
		c := client(h.random.IntN(clients))
		q.Peer = c.address
		switch n := h.random.IntN(100); {
		case n < 12:
			return logIn(q, c.name)
		case n < 30:
			q.Path = "/about"
		case n < 40:
			q.Path = "/reports/monthly"
			return withKey(q, c.key, c.tier)
		default:
			q.Path = "/api/items"
			return withKey(q, c.key, c.tier)
		}
		return sent{}
	})
	for i := range chattyClients {
		c := client(clients + i)
		add("chatty", -Lead, ever, 1.3, func(_ *Hour, q *policy.Request) sent {
			q.Peer, q.Path = c.address, "/api/items"
			return withKey(q, c.key, c.tier)
		})
	}
	for _, key := range HurtKeys() {
		add("hurt", 0, ever, Hurt[key], func(_ *Hour, q *policy.Request) sent {
			q.Peer, q.Path = netip.MustParseAddr(Office), "/api/orders"
			return withKey(q, key, "pro")
		})
	}
	scraper := func(address string) func(*Hour, *policy.Request) sent {
		return func(h *Hour, q *policy.Request) sent {
			q.Peer, q.Path = netip.MustParseAddr(address), fmt.Sprintf("/pages/%d", h.random.IntN(100_000))
			return sent{}
		}
	}
	add("scraper", ScraperBegins, ever, ScraperRate, scraper(Scraper))
	add("second", SecondBegins, ever, SecondRate, scraper(Second))
	for _, name := range Attacked {
		add("login", LoginBegins, LoginEnds, LoginRate, func(h *Hour, q *policy.Request) sent {
			n := h.random.IntN(2000)
			q.Peer = netip.AddrFrom4([4]byte{91, byte(n >> 8), byte(n), 7})
			return logIn(q, name)
		})
	}
	for i, name := range Mistyped {
		at := LoginBegins + time.Duration(i+1)*2*time.Minute
		add("mistyped", at, at+8*time.Second, 1, func(_ *Hour, q *policy.Request) sent {
			q.Peer = client(i).address
			return logIn(q, name)
		})
	}
	swap := func(at time.Duration) {
		h.acts = append(h.acts, act{at, func() {
			p, err := policy.Compile(Document(at))
			if err != nil {
				h.t.Fatal(err)
			}
			changes := p.Changes(h.Engine.Policy())
			h.Engine.Swap(p)
			h.Recorder.Note("reload", "policy loaded: "+strings.Trim(fmt.Sprint(changes), "[]"))
		}})
	}
	swap(Raised)
	swap(Added)
	for at := FlapBegins; at < FlapEnds; at += 2 * FlapEvery {
		h.acts = append(h.acts, act{at, func() { h.shared.unavailable.Store(true) }}, act{at + FlapEvery, func() { h.shared.unavailable.Store(false) }})
	}
	h.acts = append(h.acts, act{ScraperBlocked, func() { h.Block("per-address", map[string]string{"client_ip": Scraper}) }})
	slices.SortStableFunc(h.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
}

// Block blocks a subject without an end, by an override.
func (h *Hour) Block(rule string, key map[string]string) {
	if err := h.Engine.SwapOverrides([]policy.Override{{Rule: rule, Key: key, Block: true, Reason: "a scraper"}}); err != nil {
		h.t.Fatal(err)
	}
}

func withKey(q *policy.Request, key, tier string) sent {
	q.Header["X-Api-Key"] = []string{key}
	return sent{customer: key, tier: tier}
}

func logIn(q *policy.Request, name string) sent {
	q.Method, q.Path = http.MethodPost, "/login"
	q.Header["Content-Type"] = []string{"application/json"}
	q.Body = func(int64) ([]byte, error) {
		return fmt.Appendf(nil, `{"username":%q,"password":"hunter2"}`, name), nil
	}
	return sent{name: name}
}

// Time returns the virtual time at an offset into the hour.
func (h *Hour) Time(at time.Duration) time.Time { return h.began.Add(at) }

// PlayTo plays the script up to an offset into the hour. Afterwards, all events before the offset have happened,
// but no later ones.
func (h *Hour) PlayTo(at time.Duration) {
	h.t.Helper()
	for {
		now := time.Duration(h.ticks)*tick - Lead
		if now >= at {
			break
		}
		time.Sleep(time.Until(h.began.Add(now)))
		h.ticks++
		for len(h.acts) > 0 && h.acts[0].at <= now {
			h.acts[0].do()
			h.acts = h.acts[1:]
		}
		for len(h.ends) > 0 && h.ends[0].at <= now {
			h.Engine.Release(h.t.Context(), h.ends[0].decision)
			h.ends[0].call.Answered(http.StatusOK, h.ends[0].call.Elapsed())
			h.ends = h.ends[1:]
		}
		h.random.Shuffle(len(h.actors), func(i, j int) { h.actors[i], h.actors[j] = h.actors[j], h.actors[i] })
		for _, a := range h.actors {
			if now < a.from || now >= a.to {
				continue
			}
			n := a.rate * tick.Seconds()
			if a.who != "mistyped" { // these send an exact number of requests; the numbers of other actors vary at random
				n *= 2 * h.random.Float64()
			}
			for a.due += n; a.due >= 1-1e-9; a.due-- {
				h.send(a, now)
			}
		}
	}
	time.Sleep(time.Until(h.began.Add(at).Add(-tick / 2)))
}

// send has the engine decide about a request of an actor, and records the decision in the books.
func (h *Hour) send(a *actor, now time.Duration) {
	q := &h.request
	*q = policy.Request{Method: http.MethodGet, Door: "gateway", Header: http.Header{}, Ends: true}
	what := a.next(h, q)
	d := h.Engine.Decide(h.t.Context(), q)
	what.who, what.address = a.who, q.Peer.String()
	h.Books.enter(now, what, &d)
	lasts := tick
	if now >= SlowBegins && now < SlowEnds {
		lasts = SlowFor
	}
	if d.Allowed && q.Path == "/reports/monthly" {
		e := ending{now + lasts, d.Clone(), h.reports.Begin()}
		i, _ := slices.BinarySearchFunc(h.ends, e, func(a, b ending) int { return cmp.Compare(a.at, b.at+1) })
		h.ends = slices.Insert(h.ends, i, e)
	} else if d.Allowed {
		h.Engine.Release(h.t.Context(), d)
		h.app.Begin().Answered(http.StatusOK, tick/5)
	}
}

// flapping is a shared store that can be made unavailable.
type flapping struct {
	store       *memory.Store
	unavailable atomic.Bool
}

var errUnavailable = errors.New("connection refused")

func (f *flapping) TakeWithin(ctx context.Context, _ time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if f.unavailable.Load() {
		return errUnavailable
	}
	return f.store.Take(ctx, charges, receipts)
}

func (f *flapping) Shard(string) int { return 0 }

func (f *flapping) Heartbeat(context.Context, string) (int, error) {
	if f.unavailable.Load() {
		return 0, errUnavailable
	}
	return 1, nil
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
