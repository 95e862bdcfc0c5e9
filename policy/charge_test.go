package policy

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func TestMissing(t *testing.T) {
	e := engine(t, `
rules:
  - {name: skips, key: [header:A], missing: skip, limit: 1000/day}
  - {name: shares, key: [header:A], limit: 1000/day}
  - {name: refuses, match: /strict, key: [client_ip, header:A], missing: refuse, limit: 1000/day}
  - {name: shadow, match: /shadow, key: [header:A], missing: refuse, limit: 1000/day, shadow: true}`)
	for _, c := range []struct{ path, header, want string }{
		{"/", "A: 1", "skips:999 shares:999"},
		{"/", "A: !", "skips:999 shares:999"}, // not the bucket of those that lack it
		{"/", "", "shares:999"},
		{"/", "", "shares:998"},
		{"/", "A:  ", "shares:997"},
		{"/shadow", "", "shares:996"},
		{"/strict", "A: 1", "skips:998 shares:998 refuses:999"},
	} {
		r := get(c.path)
		if c.header != "" {
			r.Header.Set("A", c.header[3:])
		}
		if got := said(e.Decide(t.Context(), r)); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
	d := e.Decide(t.Context(), get("/strict"))
	if d.Allowed || d.Missing != "header:A" || len(d.Results) != 0 {
		t.Errorf("a request without a needed part: %+v", d)
	}
	if got := said(e.Decide(t.Context(), get("/"))); got != "shares:994" {
		t.Errorf("a malformed request counts for the rules that can count it, and once: %s", got)
	}
	// To send the header twice is not to leave it out.
	if got := said(e.Decide(t.Context(), get("/", "A: 1", "A: 2"))); got != "skips:999 shares:993" {
		t.Errorf("a garbled part: %s", got)
	}
}

// recorder passes charges on to a store, and remembers them.
type recorder struct {
	sluice.Store
	charges []sluice.Charge
}

func (s *recorder) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if ctx.Err() != nil {
		return ctx.Err() // as a store behind a network does
	}
	for _, c := range charges {
		c.Key = strings.Clone(c.Key)
		s.charges = append(s.charges, c)
	}
	return s.Store.Take(ctx, charges, receipts)
}

func TestKeys(t *testing.T) {
	store := &recorder{Store: memory.New()}
	e := NewEngine(store, parse(t, `
ipv6_prefix: 48
rules:
  - {name: global, limit: 9/day}
  - {name: address, key: [client_ip], limit: 9/day}
  - {name: user, key: [client_ip, header:X-User, "const:v/2"], together: [header:X-User], limit: 9/day}
  - {name: route, match: ["/a/{id}", "GET /a/{rest...}"], key: [route, method], limit: 9/day}
  - {name: tag-two, key: [header:X-User, client_ip], together: [client_ip, header:X-User], limit: 9/day}`))
	keys := func(r *Request) []string {
		store.charges = nil
		e.Decide(t.Context(), r)
		var all []string
		for _, c := range store.charges {
			all = append(all, c.Key)
		}
		return all
	}
	for _, c := range []struct {
		r    *Request
		want []string
	}{
		{request("GET", "/", "192.0.2.1", "X-User: alice"), []string{
			"global/", "address/192.0.2.1", "{alice}user/192.0.2.1/alice/v%2F2", "{192.0.2.1/alice}tag-two/alice/192.0.2.1"}},
		{request("HEAD", "/a/7", "::ffff:192.0.2.1", "X-User: {a}/!"), []string{
			"global/", "address/192.0.2.1", "{%7Ba%7D%2F%21}user/192.0.2.1/%7Ba%7D%2F%21/v%2F2",
			"route/%2Fa%2F%7Bid%7D/HEAD", "{192.0.2.1/%7Ba%7D%2F%21}tag-two/%7Ba%7D%2F%21/192.0.2.1"}},
		{request("GET", "/a/b/c", "2001:db8:1:2:3:4:5:6"), []string{
			"global/", "address/2001:db8:1::", "{!}user/2001:db8:1::/!/v%2F2",
			"route/GET%20%2Fa%2F%7Brest...%7D/GET", "{2001:db8:1::/!}tag-two/!/2001:db8:1::"}},
	} {
		if got := keys(c.r); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.r.Path, got, c.want)
		}
	}
}

// Values of any length and content give keys of bounded length that differ.
func TestKeysOfHostileValues(t *testing.T) {
	store := &recorder{Store: memory.New()}
	e := NewEngine(store, parse(t, `rules: [{name: a, key: [header:X, header:Y], limit: 9/day}]`))
	values := []string{"", "!", "*", "/", "a/b", "a", "b", "%2F", "\x00", "\xff", "{x}", "#", ":", "\n", "é", strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20+1)}
	seen := make(map[string][2]string)
	for _, x := range values {
		for _, y := range values {
			r := get("/")
			r.Header["X"], r.Header["Y"] = []string{x}, []string{y}
			e.Decide(t.Context(), r)
			key := store.charges[len(store.charges)-1].Key
			if before, twice := seen[key]; twice && before != [2]string{x, y} {
				t.Fatalf("%.20q and %.20q have the key %q", before, [2]string{x, y}, key)
			}
			seen[key] = [2]string{x, y}
			if len(key) > 300 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEF0123456789%/!#:") != "" {
				t.Fatalf("the key is %.400q", key)
			}
		}
	}
	if len(seen) != len(values)*len(values) {
		t.Errorf("%d keys of %d pairs", len(seen), len(values)*len(values))
	}
}

// recorded returns an engine, and what it charges.
func recorded(t *testing.T, rules string) (*Engine, *recorder) {
	t.Helper()
	stored := &recorder{Store: memory.New()}
	return NewEngine(stored, parse(t, rules)), stored
}
