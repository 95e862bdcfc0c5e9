package policy

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/failover"
)

// A store that stands in for another has its say, and rules that are closed without the
// other one say so.
func TestLocalReceipts(t *testing.T) {
	store := failover.New(failover.Bulkhead(broken(errors.New("connection refused")), 0), failover.Config{Logger: slog.New(slog.DiscardHandler)})
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
	store := failover.New(failover.Bulkhead(broken(errors.New("connection refused")), 0), failover.Config{Logger: slog.New(slog.DiscardHandler)})
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
