package answer

import (
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// randomDecision returns a decision of random rules, made by a store with random earlier charges.
func randomDecision(t *testing.T, rnd *rand.Rand) policy.Decision {
	store, now := memory.NewSize(1<<20), int64(1_700_000_000_000_000)+rnd.Int64N(1e12)
	charges := make([]sluice.Charge, 1+rnd.IntN(5))
	receipts := make([]sluice.Receipt, len(charges))
	d := policy.Decision{Now: now, Results: make([]policy.Result, len(charges))}
	for i := range charges {
		charges[i] = sluice.Charge{Key: fmt.Sprint(i), Plan: randomPlan(t, rnd), Shadow: rnd.IntN(4) == 0}
	}
	for at := now - int64(rnd.IntN(3))*40_000_000; at <= now; at += 10_000_000 {
		for i := range charges {
			charges[i].Cost = 1 + rnd.Int64N(1+charges[i].Plan.Capacity)
		}
		if err := store.TakeAt(t.Context(), at, charges, receipts); err != nil {
			t.Fatal(err)
		}
	}
	d.Allowed = sluice.Admitted(charges, receipts)
	for i, c := range charges {
		r := &d.Results[i]
		*r = policy.Result{Rule: randomName(rnd), Name: []string{"", randomName(rnd)}[rnd.IntN(2)], Plan: c.Plan, Cost: c.Cost, Shadow: c.Shadow}
		r.Decision = c.Plan.Decide(c.Cost, receipts[i])
		if !r.Allowed && !r.Shadow {
			d.RetryAfter = max(d.RetryAfter, r.RetryAfter)
		}
	}
	return d
}

func randomPlan(t *testing.T, rnd *rand.Rand) *sluice.Plan {
	periods := []time.Duration{time.Microsecond, time.Millisecond, 250 * time.Millisecond, time.Second,
		1500 * time.Millisecond, 1_000_001 * time.Microsecond, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour}
	counts := []int64{1, 2, 3, 7, 100, 1000, 999_983}
	l := sluice.Limit{
		Count: counts[rnd.IntN(len(counts))], Period: periods[rnd.IntN(len(periods))],
		Algorithm: sluice.Algorithms()[rnd.IntN(6)],
	}
	if l.Algorithm == sluice.FixedWindow && rnd.IntN(3) == 0 {
		l.Period, l.MonthDay = 0, 1+rnd.IntN(31)
	}
	if l.Algorithm <= sluice.GCRA && rnd.IntN(2) == 0 {
		l.Burst = counts[rnd.IntN(5)]
	}
	return plantest.Of(t, l)
}

func randomName(rnd *rand.Rand) string {
	name := make([]byte, rnd.IntN(8))
	for i := range name {
		name[i] = byte(rnd.IntN(256))
		if rnd.IntN(3) == 0 {
			name[i] = `"\,;=% `[rnd.IntN(7)]
		}
	}
	return string(name)
}

// The fields of random decisions, parsed as structured fields, equal those computed from the definitions in rational
// numbers.
func TestFields(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	encoders := []*Encoder{{}, {Dialect: Draft7, XFields: XDelta}, {Dialect: Draft3}}
	var refused, never, shadowed int
	for range 3000 {
		d := randomDecision(t, rnd)
		var told []policy.Result
		for _, r := range d.Results {
			if !r.Shadow {
				told = append(told, r)
			}
		}
		shadowed += len(d.Results) - len(told)
		if !d.Allowed {
			refused++
		}
		if d.RetryAfter == sluice.Never {
			never++
		}
		one := naiveMostRestrictive(told, &d)
		for _, e := range encoders {
			var a Answer
			h := http.Header{}
			e.Encode(&a, h, &d, Client{})
			if len(told) == 0 {
				if len(h) > 0 {
					t.Fatalf("the fields contain shadows: %v", h)
				}
				continue
			}
			switch e.Dialect {
			case Draft11:
				checkDraft11(t, h, told, &d)
			case Draft7:
				checkDraft7(t, h, told, one, &d)
			case Draft3:
				checkOne(t, h, "Ratelimit-", one, &d, false)
			}
			checkRefusal(t, h, &d)
			checkOne(t, h, "X-Ratelimit-", one, &d, e.XFields == XUnix)
		}
	}
	if refused < 100 || never < 100 || shadowed < 100 {
		t.Errorf("premise: only %d denials, %d that can never fit, %d shadows", refused, never, shadowed)
	}
}

func checkDraft11(t *testing.T, h http.Header, told []policy.Result, d *policy.Decision) {
	t.Helper()
	policies, err1 := httpsfv.UnmarshalList(h["Ratelimit-Policy"])
	states, err2 := httpsfv.UnmarshalList(h["Ratelimit"])
	if err1 != nil || err2 != nil || len(policies) != len(told) || len(states) != len(told) {
		t.Fatalf("%q: %v, %v", h, err1, err2)
	}
	for i, r := range told {
		p, s := policies[i].(httpsfv.Item), states[i].(httpsfv.Item)
		if name := naivePrintable(cmp.Or(r.Name, r.Rule)); p.Value != name || s.Value != name {
			t.Fatalf("limit %q is %q and %q", name, p.Value, s.Value)
		}
		q, w := integer(t, p, "q"), integer(t, p, "w")
		l := r.Plan.Limit
		if rate := big.NewRat(q, w); rate.Cmp(naiveRate(l, d.Now)) != 0 || w < 1 {
			t.Fatalf("%v is announced as %d per %d", l, q, w)
		}
		if got := integer(t, s, "r"); got != r.Remaining {
			t.Fatalf("%v: r=%d of %d", l, got, r.Remaining)
		}
		if got, want := integer(t, s, "t"), naiveSeconds(naiveWindow(r, d.Now)); got != want {
			t.Fatalf("%+v at %d: t=%d, want %d", r, d.Now, got, want)
		}
	}
}

func integer(t *testing.T, item httpsfv.Item, name string) int64 {
	t.Helper()
	v, _ := item.Params.Get(name)
	n, ok := v.(int64)
	if !ok {
		t.Fatalf("%s is %v", name, v)
	}
	return n
}

func checkDraft7(t *testing.T, h http.Header, told []policy.Result, one policy.Result, d *policy.Decision) {
	t.Helper()
	state, err := httpsfv.UnmarshalDictionary(h["Ratelimit"])
	if err != nil {
		t.Fatalf("%q: %v", h, err)
	}
	want := map[string]int64{
		"limit":     max(one.Plan.Limit.Count, one.Plan.Capacity),
		"remaining": one.Remaining,
		"reset":     naiveSeconds(naiveWindow(one, d.Now)),
	}
	for name, n := range want {
		if m, _ := state.Get(name); m == nil || m.(httpsfv.Item).Value != n {
			t.Fatalf("%q: want %s=%d", h, name, n)
		}
	}
	policies, err := httpsfv.UnmarshalList(h["Ratelimit-Policy"])
	if err != nil || len(policies) != len(told) {
		t.Fatalf("%q: %v", h, err)
	}
	for i, r := range told {
		p := policies[i].(httpsfv.Item)
		if big.NewRat(p.Value.(int64), integer(t, p, "w")).Cmp(naiveRate(r.Plan.Limit, d.Now)) != 0 {
			t.Fatalf("%v is announced as %v", r.Plan.Limit, p)
		}
	}
}

// checkOne checks the three fields with the given prefix, the reset in seconds since
// 1970 or from now.
func checkOne(t *testing.T, h http.Header, prefix string, one policy.Result, d *policy.Decision, unix bool) {
	t.Helper()
	reset := naiveWindow(one, d.Now)
	if unix {
		reset.Add(reset, big.NewRat(d.Now, 1_000_000))
	}
	for name, n := range map[string]int64{
		"Limit": max(one.Plan.Limit.Count, one.Plan.Capacity), "Remaining": one.Remaining, "Reset": naiveSeconds(reset),
	} {
		if got := h[prefix+name]; len(got) != 1 || got[0] != strconv.FormatInt(n, 10) {
			t.Fatalf("%s%s is %q, want %d; of %+v", prefix, name, got, n, one)
		}
	}
}

func checkRefusal(t *testing.T, h http.Header, d *policy.Decision) {
	t.Helper()
	want := []string{strconv.FormatInt(naiveSeconds(big.NewRat(d.RetryAfter.Microseconds(), 1_000_000)), 10)}
	if d.Allowed || d.RetryAfter == sluice.Never {
		want = nil
	}
	if got := h["Retry-After"]; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("Retry-After is %q, want %q", got, want)
	}
	if stored := h.Get("Cache-Control") != "no-store"; stored != d.Allowed {
		t.Fatalf("allowed %t, but %q", d.Allowed, h)
	}
}

// naiveWindow returns the effective window in seconds.
func naiveWindow(r policy.Result, now int64) *big.Rat {
	wait := big.NewRat(r.RetryAfter.Microseconds(), 1_000_000)
	if r.Remaining == 0 {
		if r.RetryAfter == sluice.Never {
			return big.NewRat(r.ResetAfter.Microseconds(), 1_000_000)
		}
		return wait
	}
	if day := r.Plan.Limit.MonthDay; day > 0 {
		_, end := naiveMonth(day, now)
		return big.NewRat(end.UnixMicro()-now, 1_000_000)
	}
	if r.Plan.Limit.Algorithm == sluice.FixedWindow {
		period := r.Plan.Limit.Period
		next := time.UnixMicro(now).Truncate(period) // Truncate counts from year 1
		if 24*time.Hour%period == 0 {
			return big.NewRat(next.Add(period).UnixMicro()-now, 1_000_000)
		}
		return big.NewRat((now/period.Microseconds()+1)*period.Microseconds()-now, 1_000_000)
	}
	window := new(big.Rat).Quo(big.NewRat(r.Remaining, 1), naiveRate(r.Plan.Limit, now))
	if !r.Allowed && wait.Cmp(window) < 0 {
		return wait
	}
	return window
}

// naiveRate returns the units per second. For calendar months, it is the rate of the month of now.
func naiveRate(l sluice.Limit, now int64) *big.Rat {
	if l.MonthDay > 0 {
		begin, end := naiveMonth(l.MonthDay, now)
		return big.NewRat(l.Count, int64(end.Sub(begin)/time.Second))
	}
	return new(big.Rat).Quo(big.NewRat(l.Count, 1), big.NewRat(int64(l.Period), int64(time.Second)))
}

// naiveMonth returns the beginning and the end of the month that contains now. It checks one day after the other.
func naiveMonth(day int, now int64) (begin, end time.Time) {
	begins := func(t time.Time) bool {
		return t.Day() == day || t.Day() < day && t.AddDate(0, 0, 1).Day() == 1
	}
	begin = time.UnixMicro(now).UTC().Truncate(24 * time.Hour)
	for end = begin.AddDate(0, 0, 1); !begins(end); {
		end = end.AddDate(0, 0, 1)
	}
	for !begins(begin) {
		begin = begin.AddDate(0, 0, -1)
	}
	return begin, end
}

// naiveSeconds rounds up, to at least 1.
func naiveSeconds(s *big.Rat) int64 {
	n := new(big.Int).Div(new(big.Int).Add(s.Num(), new(big.Int).Sub(s.Denom(), big.NewInt(1))), s.Denom())
	return max(1, n.Int64())
}

func naivePrintable(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 0x20 && c <= 0x7e {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// naiveMostRestrictive returns the most restrictive result, by the definition.
func naiveMostRestrictive(told []policy.Result, d *policy.Decision) (best policy.Result) {
	share := func(r policy.Result) *big.Rat { return big.NewRat(r.Remaining, r.Plan.Limit.Count) }
	found := false
	for _, r := range told {
		switch {
		case !d.Allowed && r.Allowed:
		case !found:
			best, found = r, true
		case !d.Allowed:
			if r.RetryAfter > best.RetryAfter {
				best = r
			}
		default:
			order := share(r).Cmp(share(best))
			if order < 0 || order == 0 && naiveWindow(r, d.Now).Cmp(naiveWindow(best, d.Now)) > 0 {
				best = r
			}
		}
	}
	return best
}

// Numbers that do not fit a structured field are announced as the largest that does.
func TestFieldsLargeNumbers(t *testing.T) {
	t.Parallel()
	quota, whole := wholeSeconds(sluice.Limit{Count: 1 << 50, Period: time.Microsecond})
	if quota != 999_999_999_999_999 || whole != 1 {
		t.Errorf("%d per %d", quota, whole)
	}
	for us, want := range map[int64]int64{0: 1, 1: 1, 1_000_000: 1, 1_000_001: 2, 1<<63 - 1: 9_223_372_036_855} {
		if got := seconds(us); got != want {
			t.Errorf("%d µs: %d s, want %d", us, got, want)
		}
	}
	for _, n := range [][4]int64{{1 << 62, 1 << 62, 3, 1<<63 - 1}, {7, 1, 2, 4}, {4, 2, 2, 4}} {
		if got := mulDivUp(n[0], n[1], n[2]); got != n[3] {
			t.Errorf("%d·%d/%d is %d", n[0], n[1], n[2], got)
		}
	}
}

// Sets of rules that share an entry of the cache, or differ in one detail, must not get each other's fields.
func TestHeaderCache(t *testing.T) {
	t.Parallel()
	a, b := randomPlan(t, rand.New(rand.NewPCG(1, 1))), randomPlan(t, rand.New(rand.NewPCG(2, 2)))
	sets := [][]policy.Result{
		{{Rule: "x", Plan: a}}, {{Rule: "y", Plan: a}}, {{Rule: "x", Plan: b}},
		{{Rule: "x", Plan: a}, {Rule: "y", Plan: b}}, {{Rule: "y", Plan: b}, {Rule: "x", Plan: a}},
		{{Rule: "x", Plan: a}, {Rule: "y", Plan: b, Shadow: true}}, {},
		{{Rule: "x", Name: "x-1", Plan: a}}, {{Rule: "x", Name: "x-2", Plan: a}, {Rule: "x", Plan: b}},
	}
	for i := range 5000 { // more than the cache has entries
		sets = append(sets, []policy.Result{{Rule: "n" + strconv.Itoa(i), Plan: a}})
	}
	var c headerCache
	for range 2 {
		for _, set := range sets {
			var want []string
			for _, r := range set {
				if !r.Shadow {
					q, w := wholeSeconds(r.Plan.Limit)
					want = append(want, fmt.Sprintf(`"%s";q=%d;w=%d`, cmp.Or(r.Name, r.Rule), q, w))
				}
			}
			if got := c.get(set, Draft11, 0).policy; got != strings.Join(want, ", ") {
				t.Fatalf("%v: %s", set, got)
			}
		}
	}
	if first := c.get(sets[0], Draft11, 0); first != c.get(sets[0], Draft11, 1) {
		t.Error("the cache keeps nothing")
	}
}
