package checkapi_test

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
)

// overStores runs a test over a store in memory, and over Redis with what counts its calls of a hundred keys and more.
func overStores(t *testing.T, test func(t *testing.T, s *server, calls func() int)) {
	t.Run("memory", func(t *testing.T) {
		test(t, start(t, testRules, nil), nil)
	})
	t.Run("redis", func(t *testing.T) {
		redis := redistest.Start(t)
		store, err := stores.Open(t.Context(), redis.URL(), stores.Config{
			Required: true, Deadline: time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		s := start(t, testRules, nil)
		s2 := start(t, testRules, func(c *checkapi.Config) { c.Engine = policy.NewEngine(sluice.Store(store), compile(t, testRules)) })
		s.url = s2.url
		redis.Do("CONFIG", "SET", "slowlog-max-len", "100000", "slowlog-log-slower-than", "0")
		test(t, s, func() int {
			defer redis.Do("SLOWLOG", "RESET")
			return len(largeScripts.FindAllString(redis.Do("SLOWLOG", "GET", "-1"), -1))
		})
	})
}

// largeScripts are scripts with many keys, which probes are not.
var largeScripts = regexp.MustCompile(`EVALSHA\s+\S+\s+\d{3,}\s`)

const guess = `"request": {"method": "POST", "path": "/guess", "client": "192.0.2.7"}`

func TestPeekAndRefund(t *testing.T) {
	overStores(t, func(t *testing.T, s *server, _ func() int) {
		const one = `{"rule": "plan", "key": {"attr:user": "u"}, "cost": 2}`
		for range 3 {
			if a := s.ask("/v1/peek", one); !a.Allowed || a.remaining("plan") != 3 {
				t.Fatalf("a peek has charged: %+v", a)
			}
		}
		s.ask("/v1/check", one)
		if a := s.ask("/v1/check", one); a.Allowed || a.remaining("plan") != 1 {
			t.Errorf("%+v", a)
		}
		if a := s.ask("/v1/refund", one); !a.Allowed || a.remaining("plan") != 3 {
			t.Errorf("after a refund: %+v", a)
		}
		s.ask("/v1/check", `{"request": {"path": "/", "client": "192.0.2.1"}, "cost": 9}`)
		if a := s.ask("/v1/refund", `{"request": {"path": "/", "client": "192.0.2.1"}, "cost": 9}`); a.remaining("per-address") != 200 {
			t.Errorf("after a refund: %+v", a)
		}
	})
}

// A question with an ID that is asked again costs nothing, in a batch either.
func TestRepeatedIDs(t *testing.T) {
	overStores(t, func(t *testing.T, s *server, _ func() int) {
		const one = `{"rule": "plan", "key": {"attr:user": "u"}, "id": "a"}`
		for i := range 5 {
			if a := s.ask("/v1/check", one); !a.Allowed || a.remaining("plan") != 2 || a.Repeated != (i > 0) {
				t.Errorf("%d: %+v", i, a)
			}
		}
		for _, a := range s.do("POST", "/v1/check", `{"checks": [`+one+`,`+strings.Replace(one, `"a"`, `"b"`, 1)+`,`+one+`]}`).want(200).answers() {
			if !a.Allowed {
				t.Errorf("%+v", a)
			}
		}
		if a := s.ask("/v1/peek", one); a.remaining("plan") != 1 {
			t.Errorf("two IDs have left %d of 3", a.remaining("plan"))
		}
	})
}

func TestSettle(t *testing.T) {
	overStores(t, func(t *testing.T, s *server, _ func() int) {
		left := func() int64 { return s.ask("/v1/peek", "{"+guess+"}").remaining("guesses") }
		settle := func(rest string) string {
			t.Helper()
			return string(s.do("POST", "/v1/settle", "{"+guess+rest+"}").want(200).body)
		}
		a := s.ask("/v1/check", "{"+guess+`, "id": "1"}`)
		if age := time.Since(a.At); age < 0 || age > time.Minute {
			t.Errorf("what is to be settled has the time %v", a.At)
		}
		if settle(`, "id": "1", "outcome": {"status": 401}`); left() != 2 {
			t.Errorf("a wrong password counts, and %d of 3 are left", left())
		}
		a = s.ask("/v1/check", "{"+guess+`, "id": "2"}`)
		for range 2 { // a proxy that is not sure asks again
			if said := settle(fmt.Sprintf(`, "id": "2", "outcome": {"status": 200}, "at": %q`, a.At.Format(time.RFC3339Nano))); said != "{\"settled\":true}\n" {
				t.Error(said)
			}
		}
		if left() != 2 {
			t.Errorf("a right password does not count, and %d of 3 are left", left())
		}
		s.ask("/v1/check", "{"+guess+"}")
		if settle(`, "outcome": {"counts": false}`); left() != 2 {
			t.Errorf("what the program says does not count, and %d of 3 are left", left())
		}
		s.ask("/v1/check", "{"+guess+"}")
		if settle(`, "outcome": {"counts": false}, "at": "2026-01-01T00:00:00Z"`); left() != 1 {
			t.Errorf("what was charged long ago is not given back, and %d of 3 are left", left())
		}
		if said := s.do("POST", "/v1/settle", `{"rule": "per-key", "key": {"api_key": "k"}, "outcome": {"status": 401}}`).want(200); string(said.body) != "{\"settled\":false}\n" {
			t.Errorf("%s", said.body)
		}
		s.do("POST", "/v1/settle", `{"request": {"path": "/", "client": "203.0.113.9"}, "outcome": {}}`).want(400).says("spam")
	})
}

// A thousand checks are one call of the store, and so are a thousand refunds. Larger ones than 1024
// charges are several.
func TestBatchIsOneCall(t *testing.T) {
	overStores(t, func(t *testing.T, s *server, calls func() int) {
		checks := make([]string, 1000)
		for i := range checks {
			checks[i] = fmt.Sprintf(`{"rule": "per-address", "key": {"client_ip": "192.0.%d.%d"}}`, i>>8, i&255)
		}
		batch := `{"checks": [` + strings.Join(checks, ",") + `]}`
		s.do("POST", "/v1/peek", batch).want(200) // connects, and loads the script
		if calls != nil {
			calls()
		}
		for _, c := range []struct {
			path string
			left int64
		}{{"/v1/check", 199}, {"/v1/check", 198}, {"/v1/refund", 199}} {
			all := s.do("POST", c.path, batch).want(200).answers()
			if calls != nil {
				if n := calls(); n != 1 {
					t.Errorf("%s of a thousand are %d calls", c.path, n)
				}
			}
			for i, a := range all {
				if !a.Allowed || a.remaining("per-address") != c.left {
					t.Fatalf("%s: answer %d is %+v", c.path, i, a)
				}
			}
		}
	})
}

// While the store is away on_error decides, and no number is told that nobody knows.
func TestStoreAway(t *testing.T) {
	redis := redistest.Start(t)
	store, err := stores.Open(t.Context(), redis.URL(), stores.Config{Required: true, Deadline: 100 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	rules := `
version: 1
rules:
  - {name: open, match: /open, limit: 5/minute, on_error: allow}
  - {name: shut, match: /shut, limit: 5/minute, on_error: deny}
`
	s := start(t, rules, func(c *checkapi.Config) { c.Engine = policy.NewEngine(store, compile(t, rules)) })
	redis.Kill()
	a := s.ask("/v1/check", `{"request": {"path": "/open"}}`)
	if !a.Allowed || len(a.Results) != 1 || a.Results[0].Remaining != nil {
		t.Errorf("%+v", a)
	}
	s.do("POST", "/v1/check", `{"request": {"path": "/open"}}`).says(`"degraded":true`)
	a = s.do("POST", "/v1/check?status=1", `{"request": {"path": "/shut"}}`).want(503).answer()
	if a.Allowed || !a.Unavailable || a.RetryAfter != 1 || a.Status != 503 {
		t.Errorf("%+v", a)
	}
}
