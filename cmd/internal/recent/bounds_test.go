package recent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// boundsCase is a section of testdata/bounds.txt.
type boundsCase struct {
	now, then         *policy.Document
	paths             []string
	earlier, requests int
	want              map[string]string // by "fresh" and "shared"
}

func boundsCaseOf(t *testing.T, text string) boundsCase {
	t.Helper()
	parts := strings.Split(text, "\n---\n")
	c := boundsCase{now: decode(t, parts[0]), then: decode(t, parts[1]), paths: []string{"/a"}, want: map[string]string{}}
	for line := range strings.Lines(parts[2]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch name {
		case "":
		case "paths":
			c.paths = strings.Fields(value)
		case "earlier":
			_, err = fmt.Sscan(value, &c.earlier)
		case "requests":
			_, err = fmt.Sscan(value, &c.requests)
		case "fresh", "shared":
			c.want[name] = value
		default:
			t.Fatalf("unknown line %q", line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// decide makes requests to an engine, and returns which of them it allows.
func (c *boundsCase) decide(t *testing.T, e *policy.Engine, n int) (allowed []bool) {
	t.Helper()
	for range n {
		for _, path := range c.paths {
			q := policy.Request{Method: "GET", Path: path, Peer: netip.MustParseAddr("192.0.2.1")}
			allowed = append(allowed, e.Decide(t.Context(), &q).Allowed)
			time.Sleep(time.Microsecond) // so that records have an order
		}
	}
	return allowed
}

// truth returns the effect of the change if the changed policy had been in force from the first request.
func (c *boundsCase) truth(t *testing.T) (out Change) {
	t.Helper()
	before, after := engineOf(t, c.now), engineOf(t, c.then)
	c.decide(t, before, c.earlier)
	c.decide(t, after, c.earlier)
	is := c.decide(t, after, c.requests)
	for i, was := range c.decide(t, before, c.requests) {
		switch {
		case was && !is[i]:
			out.Newly++
		case is[i] && !was:
			out.Freed++
		}
	}
	return out
}

// A trial reports one number if counters cannot be older than the records. Otherwise it reports a range, which
// includes the true number and does not depend on rules that do not change.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, section := range testkit.Sections(t, "testdata/bounds.txt") {
		t.Run(section.Name, func(t *testing.T) {
			t.Parallel()
			c := boundsCaseOf(t, section.Text)
			synctest.Test(t, func(t *testing.T) {
				truth := c.truth(t)
				for store, want := range c.want {
					engine := engineOf(t, c.now)
					c.decide(t, engine, c.earlier)
					ring := Watch(engine, LeastBytes)
					f := NewFleet(ring, nil, func() *policy.Document { return c.now }, slog.New(slog.DiscardHandler))
					ring.fresh = store == "fresh"
					c.decide(t, engine, c.requests)
					got, err := f.Try(t.Context(), c.then)
					if err != nil {
						t.Fatal(err)
					}
					if is := fmt.Sprintf("newly %s, freed %s", ranged(got.Newly, got.Most.Newly), ranged(got.Freed, got.Most.Freed)); is != want {
						t.Errorf("%s: %s, want %s: %s", store, is, want, encoded(t, got))
					}
					if truth.Newly > got.Most.Newly || truth.Freed > got.Most.Freed || store == "fresh" && truth != got.Change {
						t.Errorf("%s: the truth is %+v: %s", store, truth, encoded(t, got))
					}
				}
			})
		})
	}
}

func ranged(from, to int64) string {
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d to %d", from, to)
}
