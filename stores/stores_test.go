package stores_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/stores"
)

// TestMain ignores goroutines in which a cluster client waits for some seconds before it refreshes the list of nodes or
// closes connections to removed nodes.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// logText is a writer that keeps the text of a log.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *logText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *logText) has(text string) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.text.String(), text)
	}
}

func (s *logText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

func open(t *testing.T, url string, c stores.Config) *stores.Store {
	t.Helper()
	s, err := stores.Open(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func charges(t *testing.T, limit string, on sluice.OnError) []sluice.Charge {
	return []sluice.Charge{{Key: "k", Plan: plantest.Plan(t, limit), Cost: 1, OnError: on}}
}

// A service starts although its store is unavailable, and uses the store as soon as it is available.
func TestOpenLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := server.URL()
	server.Kill()
	var log logText
	s := open(t, url, stores.Config{Logger: log.logger(), Deadline: 2 * time.Second})
	if s.Answers() || s.Failover() == nil || s.Cluster() {
		t.Errorf("%v: want an unavailable store with a fallback", s)
	}
	take := func(on sluice.OnError) sluice.Receipt {
		t.Helper()
		return plantest.Take(t, s, charges(t, "10/day", on)...)[0]
	}
	if deny, allow := take(sluice.Deny), take(sluice.Allow); deny.Fits || !allow.Fits {
		t.Errorf("without the store: %+v, %+v", deny, allow)
	}
	if !log.has("the store is unavailable")() {
		t.Error("the log does not report that the store is unavailable")
	}
	server.Restart("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	testkit.Await(t, "the store is used", func() bool { return take(sluice.Deny).Origin == sluice.ByStore })
	testkit.Await(t, "the log reports a danger", log.has("allkeys-lru"))
	testkit.Await(t, "Answers reports true", s.Answers)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	unavailable := redistest.Start(t)
	unavailable.Kill()
	secret := strings.Replace(server.URL(), "redis://", "redis://:wrong-secret@", 1)
	cases := map[string]struct {
		url  string
		c    stores.Config
		kind redisstore.Kind
		text string
	}{
		"no URL":                 {"", stores.Config{}, redisstore.Misconfigured, "store URL"},
		"another scheme":         {"http://localhost", stores.Config{}, redisstore.Misconfigured, "unknown scheme"},
		"memory as a URL":        {"memory://", stores.Config{}, redisstore.Misconfigured, `write only "memory"`},
		"wrong password":         {secret, stores.Config{}, redisstore.Misconfigured, "password"},
		"unavailable, but asked": {unavailable.URL(), stores.Config{Required: true}, redisstore.Unavailable, "start the server"},
	}
	for name, c := range cases {
		s, err := stores.Open(t.Context(), c.url, c.c)
		e, ok := errors.AsType[*redisstore.Error](err)
		if !ok || e.Kind != c.kind || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "wrong-secret") {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if name := open(t, strings.Replace(server.URL(), "redis://", "redis://:right@", 1), stores.Config{Logger: new(logText).logger()}).String(); strings.Contains(name, "right") {
		t.Errorf("the name of a store is %s", name)
	}
}

// The log reports that memory is too small for all limited keys.
func TestLosses(t *testing.T) {
	t.Parallel()
	var log logText
	s := open(t, stores.Memory, stores.Config{Memory: memory.Config{MaxBytes: 64 << 10}, Logger: log.logger()})
	if !s.Answers() || s.Failover() != nil || s.String() != stores.Memory {
		t.Errorf("%v is not a memory store", s)
	}
	one := charges(t, "1/day", sluice.Allow)
	for i := range 20_000 {
		one[0].Key = fmt.Sprint(i)
		plantest.Take(t, s, one...)
	}
	if s.Memory().Losses().Freed == 0 {
		t.Fatal("premise: no key was freed")
	}
	testkit.Await(t, "the log reports it", log.has("memory is too small for all limited keys"))
}

// If the user lacks a right that decisions need, Open fails, whether the store is required or not: all requests would
// be decided by on_error. If the user lacks a right that only the exchange between instances needs, the log reports
// this.
func TestRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "3600 1")
	url := strings.Replace(server.URL(), "://", "://app:pw@", 1)
	for _, required := range []bool{false, true} {
		server.Do("ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", "-mget")
		if s, err := stores.Open(t.Context(), url, stores.Config{Required: required, Logger: new(logText).logger()}); err == nil || !strings.Contains(err.Error(), "ACL SETUSER NAME +mget") {
			t.Errorf("error %v, want the right +mget", err)
			if s != nil {
				s.Close()
			}
		}
	}
	server.Do("ACL", "SETUSER", "app", "+mget", "-hset")
	log := new(logText)
	open(t, url, stores.Config{Logger: log.logger()})
	if !log.has("ACL SETUSER NAME +hset")() {
		t.Error("the log does not contain the missing right")
	}
}

const layers = `
version: 1
rules:
  - {name: key, key: [api_key], limit: 20/day, algorithm: fixed_window, penalty: 1h, on_error: deny}
  - {name: address, key: [client_ip], limit: 1000/day, on_error: deny}
  - {name: all, limit: 100000/day, algorithm: sliding_window_log, on_error: deny}`

// Requests with the same ID, from any number of processes at once, are charged once.
func TestSameQuestion(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": redistest.Shared(t).URL(), "cluster": redistest.SharedCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSameQuestion(t, url)
		})
	}
}

func testSameQuestion(t *testing.T, url string) {
	p, err := policyfile.Parse("layers.yaml", []byte(layers))
	if err != nil {
		t.Fatal(err)
	}
	var engines []*policy.Engine
	for range 3 {
		store := open(t, url, stores.Config{Deadline: time.Minute, Logger: new(logText).logger()})
		engines = append(engines, policy.NewEngine(store, p))
	}
	for round := range 10 {
		key := fmt.Sprint("k", round)
		var first, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				// Twenty requests, three times each: the limit allows twenty a day.
				r := &policy.Request{Path: "/", Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Api-Key": {key}}, ID: fmt.Sprint("question ", i%20)}
				d := engines[i%3].Decide(t.Context(), r)
				switch {
				case d.Err != nil || d.Unavailable:
					t.Errorf("%+v", d)
				case !d.Allowed:
					refused.Add(1)
				case !d.Repeated:
					first.Add(1)
				}
			})
		}
		all.Wait()
		if first.Load() != 20 || refused.Load() != 0 {
			t.Errorf("of twenty requests, sent three times each, %d were charged and %d denied", first.Load(), refused.Load())
		}
		for _, e := range engines {
			d := e.Decide(t.Context(), &policy.Request{Path: "/", Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Api-Key": {key}}, Mode: policy.Peek})
			if d.Allowed || d.Results[0].Remaining != 0 || d.Results[1].Remaining != int64(1000-20*(round+1)) {
				t.Errorf("afterwards: %+v", d)
			}
		}
	}
}
