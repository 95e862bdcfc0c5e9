package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

// wall is a board in memory that any number of instances share.
type wall struct {
	mu          sync.Mutex
	unavailable bool
	posts       map[string]map[string][]byte
	expire      map[string]time.Time
}

func (w *wall) Post(_ context.Context, part, instance string, message []byte, expires time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unavailable {
		return errors.New("the board is unavailable")
	}
	if w.posts == nil {
		w.posts, w.expire = map[string]map[string][]byte{}, map[string]time.Time{}
	}
	if w.posts[part] == nil {
		w.posts[part] = map[string][]byte{}
	}
	w.posts[part][instance] = slices.Clone(message)
	w.expire[part+instance] = time.Now().Add(expires)
	return nil
}

func (w *wall) Posted(_ context.Context, part string) (map[string][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unavailable {
		return nil, errors.New("the board is unavailable")
	}
	all := map[string][]byte{}
	for instance, message := range w.posts[part] {
		if time.Now().Before(w.expire[part+instance]) {
			all[instance] = message
		}
	}
	return all, nil
}

func (w *wall) set(unavailable bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unavailable = unavailable
}

// cutOff is the board of an instance that is killed.
type cutOff struct {
	*wall
	off atomic.Bool
}

func (c *cutOff) Post(ctx context.Context, part, instance string, message []byte, expires time.Duration) error {
	if c.off.Load() {
		return errors.New("the board is unavailable")
	}
	return c.wall.Post(ctx, part, instance, message, expires)
}

// member is an instance of a fleet.
type member struct {
	engine *policy.Engine
	fleet  *telemetry.Fleet
	stop   func()
}

func join(t *testing.T, name string, board telemetry.Board, rules ...policy.Rule) *member {
	return joinBy(t, board, policy.NewEngine(memory.New(), compile(t, rules...)), telemetry.Config{Instance: name}, nil)
}

// joinBy adds an instance with an engine to a fleet, until the test ends or stop is called. kept may be nil.
func joinBy(t *testing.T, board telemetry.Board, e *policy.Engine, c telemetry.Config, kept *telemetry.Refusals) *member {
	m := &member{engine: e, fleet: &telemetry.Fleet{Recorder: telemetry.Watch(e, c), Board: board, Refusals: kept}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.fleet.Run(ctx) })
	m.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(m.stop)
	return m
}

func (m *member) refused() (n uint64) {
	for _, r := range m.fleet.View().Rules {
		c := sum(r.Recent)
		n += c[telemetry.Deny]
	}
	return n
}

var blocking = policy.Rule{Name: "a", Block: true}

// A view has the counts of all instances, while instances lose the board, stop, are killed, and start again.
func TestFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := new(wall)
		a, b := join(t, "a", board, blocking), join(t, "b", board, blocking, policy.Rule{Name: "only-b", Block: true})
		wait := func(d time.Duration) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
		}
		want := func(what string, refused uint64, instances, stale int) *telemetry.View {
			t.Helper()
			wait(1500 * time.Millisecond) // views are cached for a second
			v := a.fleet.View()
			silent := 0
			for _, i := range v.Instances {
				if i.Stale {
					silent++
				}
			}
			all := sum(v.All.Recent)
			if a.refused() != refused || all[telemetry.Deny] != refused || len(v.Instances) != instances || silent != stale {
				t.Errorf("%s: %d denied by rules, %d in total, %d instances, %d of them stale; want %d, %d, %d",
					what, a.refused(), all[telemetry.Deny], len(v.Instances), silent, refused, instances, stale)
			}
			return v
		}
		a.fleet.View() // posts are read only while views are requested
		deny(t, a.engine, 3)
		deny(t, b.engine, 4)
		wait(12 * time.Second)
		if v := want("both", 7, 2, 0); v.Instances[0].Policy == v.Instances[1].Policy || !v.Instances[0].Self {
			t.Errorf("the instances are %+v", v.Instances)
		}
		wait(time.Minute)
		forge(t, board)
		wait(9 * time.Minute)
		deny(t, b.engine, 5)
		wait(12 * time.Second)
		want("later", 12, 2, 0)

		board.set(true)
		deny(t, a.engine, 1)
		deny(t, b.engine, 100)
		wait(20 * time.Second)
		v := want("the board is unavailable", 13, 2, 1)
		if h := v.Headline(); !strings.Contains(h.Text, "instance b does not respond") {
			t.Errorf("the headline is %q", h.Text)
		}
		if !slices.ContainsFunc(v.Events, func(e telemetry.Event) bool { return e.Kind == "fleet" && strings.Contains(e.Text, "unavailable") }) {
			t.Errorf("no event reports the board: %v", v.Events)
		}
		board.set(false)
		wait(12 * time.Second)
		want("the board is back", 113, 2, 0)

		// Instance b stops with counts that it has not posted yet. They arrive, and b is no longer listed.
		deny(t, b.engine, 6)
		b.stop()
		wait(12 * time.Second)
		want("one has ended", 119, 1, 0)
		wait(11 * time.Minute)
		want("its counts stay", 119, 1, 0)

		// An instance that stops before the others have read its posts.
		short := join(t, "c", board, blocking)
		deny(t, short.engine, 3)
		short.stop()
		wait(12 * time.Second)
		want("a short-lived instance has stopped", 122, 1, 0)

		// When b starts again, its counts start at zero, and are added to its earlier ones.
		cut := &cutOff{wall: board}
		b = join(t, "b", cut, blocking)
		deny(t, b.engine, 2)
		wait(2 * time.Minute) // all counts are posted once a minute
		want("b is back", 124, 2, 0)
		cut.off.Store(true)
		b.stop()
		wait(30 * time.Second)
		want("b was killed", 124, 2, 1)

		// A new instance with the name of the killed one replaces it.
		b = join(t, "b", board, blocking)
		c := join(t, "c", board, blocking)
		wait(30 * time.Second)
		want("b and c have started", 124, 3, 0)
		b.stop()
		c.stop()
		wait(12 * time.Second)
		want("both have ended", 124, 1, 0)

		cut = &cutOff{wall: board}
		b = join(t, "b", cut, blocking)
		deny(t, b.engine, 1)
		wait(2 * time.Minute)
		cut.off.Store(true)
		b.stop()
		wait(11 * time.Minute)
		want("the killed instance is no longer listed, but its counts stay", 125, 1, 0)
		a.stop()
	})
}

// forge posts data under other instances' names that no instance of this version would post. Readers must ignore it.
func forge(t *testing.T, board *wall) {
	t.Helper()
	posts, err := board.Posted(t.Context(), "now")
	if err != nil || len(posts) != 2 {
		t.Fatal(posts, err)
	}
	for id, post := range posts {
		for part, forged := range map[string][]byte{
			"now":      post,                                 // contains the name of another instance
			"history":  post[:len(post)/2],                   // is truncated
			"subjects": append([]byte{'S', 99}, post[2:]...), // has another version
		} {
			if err := board.Post(t.Context(), part, id+"-forged", forged, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Instances that share a Redis all see the sum of their counts.
func TestRedis(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := redistest.Shared(t).URL() + "?hash_key=" + secret
	open := func() *stores.Store {
		s, err := stores.Open(t.Context(), url, stores.Config{Deadline: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	a, b, looks := join(t, "a", open().Board(), blocking), join(t, "b", open().Board(), blocking), join(t, "looks", open().Board(), blocking)
	deny(t, a.engine, 1000)
	deny(t, b.engine, 234)
	for _, m := range []*member{a, b, looks} {
		testkit.Await(t, "the counts of both instances arrive", func() bool { return m.refused() == 1234 })
		v := m.fleet.View()
		if all := sum(v.All.Days); all[telemetry.Deny] != 1234 || len(v.Instances) != 3 {
			t.Errorf("%v from %+v", all, v.Instances)
		}
	}
	if s, err := stores.Open(t.Context(), stores.Memory, stores.Config{}); err != nil || s.Board() != nil {
		t.Errorf("memory has a board: %v", err)
	} else {
		_ = s.Close()
	}
}

// A new policy that takes a few seconds to reach all instances is not reported as a difference. A difference that lasts
// is reported.
func TestFleetPolicyDiffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := new(wall)
		rule := policy.Rule{Name: "a", Limit: "1/day"}
		a, b := join(t, "a", board, rule), join(t, "b", board, rule)
		differs := func(d time.Duration) (any bool) {
			for until := time.Now().Add(d); time.Now().Before(until); {
				time.Sleep(time.Second)
				synctest.Wait()
				for _, m := range []*member{a, b} {
					for _, i := range m.fleet.View().Instances {
						any = any || i.Differs
					}
				}
			}
			return any
		}
		if differs(time.Minute) {
			t.Error("equal policies are reported as different")
		}
		rule.Limit = "2/day"
		a.engine.Swap(compile(t, rule))
		if differs(10 * time.Second) {
			t.Error("a new policy that has not reached all instances yet is reported as different")
		}
		b.engine.Swap(compile(t, rule))
		if differs(time.Minute) {
			t.Error("a new policy that has reached all instances is reported as different")
		}
		rule.Limit = "3/day"
		a.engine.Swap(compile(t, rule))
		if differs(20 * time.Second); !differs(20 * time.Second) {
			t.Error("a lasting difference is not reported")
		}
	})
}

// All instances see the subjects and customers of each one: the tier, the limit, the original spelling, and the denials
// by a block.
func TestFleetSubjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := new(wall)
		p, err := policy.Compile(policy.Document{
			Tiers:    policy.Tiers{Subject: "api_key", Default: "free"},
			Subjects: []policy.TierSubject{{Subject: "k-1", Tier: "pro"}},
			Rules: []policy.Rule{
				{Name: "per-address", Key: []string{"client_ip"}, Limit: "100/day"},
				{Name: "login", Match: []string{"POST /login"}, Key: []string{"body:username"}, Limit: "5/minute"},
				{Name: "api", Match: []string{"/api"}, Key: []string{"api_key"}, Missing: "skip", Limit: "1000/day", Tiers: map[string]policy.Limits{"pro": {"2000/day"}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := func(name string) *member {
			return joinBy(t, board, policy.NewEngine(memory.New(), p), telemetry.Config{Instance: name, Subjects: true}, nil)
		}
		a, b := begin("a"), begin("b")
		ask := func(m *member, n int, address, key, name string) {
			for range n {
				q := policy.Request{Path: "/api", Peer: netip.MustParseAddr(address), Header: http.Header{}}
				if key != "" {
					q.Header["X-Api-Key"] = []string{key}
				}
				if name != "" {
					q.Method, q.Path = "POST", "/login"
					q.Header["Content-Type"] = []string{"application/json"}
					q.Body = func(int64) ([]byte, error) { return fmt.Appendf(nil, `{"username":%q}`, name), nil }
				}
				m.engine.Decide(t.Context(), &q)
			}
		}
		ask(a, 150, "192.0.2.1", "k-1", "")
		ask(b, 130, "192.0.2.1", "k-1", "")
		ask(a, 20, "192.0.2.2", "", "Mary")
		ask(b, 20, "192.0.2.3", "", "Mary")
		attacker, err := a.engine.Subject("per-address", map[string]string{"client_ip": "192.0.2.9"})
		if err != nil {
			t.Fatal(err)
		}
		ask(a, 160, "192.0.2.9", "", "")
		if err := attacker.Block(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		ask(a, 500, "192.0.2.9", "", "")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		defer a.stop()
		defer b.stop()
		for _, m := range []*member{a, b} {
			v := m.fleet.View()
			if len(v.Instances) != 2 {
				t.Fatalf("%d instances, want 2", len(v.Instances))
			}
			const hour = telemetry.Hour
			address := &v.Rule("per-address").Refusals[hour]
			if s := address.Items[0]; s.Shown != "192.0.2.9" || s.Count != 560 || s.Blocked != 500 {
				t.Errorf("the attacker has %+v", s)
			} else if found, known := m.fleet.Find(s.ID); !known || found != s.Key {
				t.Errorf("found %q, want %q", found, s.Key)
			}
			if top, n := v.Rule("per-address").Unblocked(hour); n != 2 || top.Total != 140 || top.Items[0].Shown != "192.0.2.1" || top.Items[1].Count != 60 {
				t.Errorf("without the block, %d subjects were denied: %+v", n, top)
			}
			if s := v.Rule("login").Refusals[hour].Items[0]; s.Key != "login/maru" || s.Sent != "login/Mary" || s.Shown != "Mary" || s.Count != 30 || s.Limit.Count != 5 || s.Limit.Period != time.Minute {
				t.Errorf("Mary has %+v", s)
			}
			var rows []string
			for _, tier := range v.Tiers {
				for _, s := range tier.Refusals[hour].Items {
					rows = append(rows, fmt.Sprintf("%s %s %d", tier.Name, s.Key, s.Count))
				}
				if tier.Name == "pro" && (tier.Traffic[hour].Items[0].Count != 280 || tier.Refused[hour] != 1 || tier.Refusals[hour].Items[0].Limit.Count != 100) {
					t.Errorf("pro has %+v", tier.Traffic[hour])
				}
			}
			if got, want := strings.Join(rows, ", "), " per-address/192.0.2.9 60,  login/maru 30, pro api/k-1 80"; got != want {
				t.Errorf("customers are %q, want %q", got, want)
			}
		}
	})
}
