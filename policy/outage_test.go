package policy

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// brokenStore is a store that does not answer.
type brokenStore struct{ err error }

func (s brokenStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error { return s.err }

func TestOnError(t *testing.T) {
	p := parse(t, `
rules:
  - {name: open, match: [/open, /mixed], limit: 1/day}
  - {name: closed, match: [/closed, /mixed], limit: 1/day, on_error: deny}
  - {name: local, match: [/local, /mixed], limit: 1/day, on_error: local}
  - {name: shadow, match: /shadow, limit: 1/day, on_error: deny, shadow: true}
  - {name: exempt, match: /exempt, exempt: true}`)
	down := errors.New("connection refused")
	e := NewEngine(brokenStore{down}, p)
	for path, want := range map[string]bool{"/open": true, "/closed": false, "/local": true, "/mixed": false, "/shadow": true} {
		d := e.Decide(t.Context(), get(path))
		if d.Allowed != want || d.Unavailable == want || !d.Degraded || d.Err != down || d.Now != 0 || len(d.Results) == 0 {
			t.Errorf("%s: %+v", path, d)
		}
		if (d.RetryAfter >= time.Second) == want {
			t.Errorf("%s: retry after %v", path, d.RetryAfter)
		}
		if x := e.Explain(t.Context(), get(path)).Decision; x.Allowed != d.Allowed || x.Unavailable != d.Unavailable || !x.Degraded {
			t.Errorf("%s: explained as %+v", path, x)
		}
	}
	for _, path := range []string{"/exempt", "/none"} {
		if d := e.Decide(t.Context(), get(path)); !d.Allowed || d.Degraded {
			t.Errorf("%s: %+v", path, d)
		}
	}
}

// A store that stands in for another has its say, and rules that are closed without the
// other one say so.
func TestLocalReceipts(t *testing.T) {
	store := failover.New(failover.Bulkhead(brokenStore{errors.New("connection refused")}, 0), failover.Config{Logger: slog.New(slog.DiscardHandler)})
	defer store.Close()
	e := NewEngine(store, parse(t, `
rules:
  - {name: open, match: [/open, /mixed], limit: 1000/day}
  - {name: closed, match: [/closed, /mixed], limit: 1000/day, on_error: deny}
  - {name: local, match: [/local, /mixed], limit: 3/day, on_error: local}
  - {name: shadow, match: /local, limit: 3/day, on_error: deny, shadow: true}`))
	for path, want := range map[string]int{"/open": 10, "/closed": 0, "/local": 3, "/mixed": 0} {
		passed := 0
		for range 10 {
			would := e.Explain(t.Context(), get(path)).Decision
			d := e.Decide(t.Context(), get(path))
			if d.Allowed {
				passed++
			}
			closed := want == 0
			if !d.Degraded || d.Unavailable != closed || (d.Now == 0) != closed || closed && d.RetryAfter != time.Second {
				t.Errorf("%s: %+v", path, d)
			}
			if would.Allowed != d.Allowed || would.Unavailable != d.Unavailable || !would.Degraded {
				t.Errorf("%s: explained as %+v, decided %+v", path, would, d)
			}
		}
		if passed != want {
			t.Errorf("%s: %d of 10 passed, want %d", path, passed, want)
		}
	}
}

func TestNoStore(t *testing.T) {
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "needs a store: memory.New()") {
			t.Errorf("without a store: %q", s)
		}
	}()
	NewEngine(nil, nil)
}

// What on_error allows passes however much of the share is used, also where it is asked about
// before a body is read, and is explained so.
func TestAllowBeyondShare(t *testing.T) {
	store := failover.New(failover.Bulkhead(brokenStore{errors.New("connection refused")}, 0), failover.Config{Logger: slog.New(slog.DiscardHandler)})
	defer store.Close()
	e := NewEngine(store, parse(t, `
rules:
  - {name: each, key: [client_ip], limit: 2/day}
  - {name: typed, match: /typed, key: [body:user], limit: 2/day}
  - {name: closed, match: /closed, limit: 9/day, on_error: deny}
  - {name: share, match: [/closed, /share], limit: 2/day, on_error: local}`))
	for n := range 5 {
		for path, want := range map[string]bool{"/": true, "/typed": true, "/closed": false, "/share": n < 2} {
			r := get(path)
			r.Body = func(int64) ([]byte, error) { return []byte("user=alice"), nil }
			would, is := e.Explain(t.Context(), r).Decision, e.Decide(t.Context(), r)
			if is.Allowed != want || is.Unavailable != (path == "/closed") || would.Allowed != is.Allowed || would.Unavailable != is.Unavailable ||
				would.RetryAfter.Round(time.Second) != is.RetryAfter.Round(time.Second) && !is.Allowed {
				t.Errorf("%s: explained as %+v, decided %+v", path, would, is)
			}
			r.Cost = 99
			if would, is := e.Explain(t.Context(), r).Decision, e.Decide(t.Context(), r); would.Allowed != is.Allowed || is.Allowed != (path == "/" || path == "/typed") {
				t.Errorf("%s at a cost: explained as %+v, decided %+v", path, would, is)
			}
		}
	}
}
