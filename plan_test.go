package sluice_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/kernel"
)

var (
	plan     = plantest.Of
	inFlight = plantest.InFlight
)

const day = 24 * time.Hour

func TestPlans(t *testing.T) {
	kernels := map[kernel.Kind]string{
		kernel.Meter: "meter", kernel.Window: "window", kernel.StampLog: "stamps", kernel.CountLog: "counts", kernel.ExactLog: "exact",
	}
	for _, line := range texts(t, "testdata/plans.txt") {
		limit := plantest.Limit(t, line[0])
		p := plan(t, limit)
		got := fmt.Sprintf("%s: tick %d", kernels[p.Kernel], p.Tick)
		for _, field := range []struct {
			name  string
			value int64
		}{{"unit", p.Unit}, {"drain", p.Drain}, {"size", p.Size}, {"span", p.Span}, {"capacity", p.Capacity}, {"burst", p.Limit.Burst}} {
			if field.value != 0 {
				got += fmt.Sprintf(", %s %d", field.name, field.value)
			}
		}
		if got != line[1] {
			t.Errorf("%s: %s, want %s", line[0], got, line[1])
		}
		checkPlan(t, limit)
	}
	checkPlan(t, sluice.Limit{Count: math.MaxInt64, Period: math.MaxInt64 / 1000 * 1000, Burst: 5, Algorithm: sluice.LeakyBucket})
}

// checkPlan checks the plan of l, if l has one: its numbers express l exactly, and the numbers computed from them fit
// into 52 bits, which floating-point numbers represent exactly.
func checkPlan(t *testing.T, l sluice.Limit) {
	t.Helper()
	p, err := sluice.NewPlan(l)
	if err != nil {
		if !strings.HasPrefix(err.Error(), "limit ") {
			t.Errorf("%+v: %v", l, err)
		}
		return
	}
	period := l.Period.Microseconds()
	switch {
	case p.Kernel.Log():
		checkLogPlan(t, p)
		return
	case l.MonthDay > 0:
		if p.Tick != 1 || p.Span != 1 || p.Capacity != l.Count || p.Capacity > 1<<51 {
			t.Errorf("%+v: ticks of %d, a span of %d and a capacity of %d", l, p.Tick, p.Span, p.Capacity)
		}
		return
	}
	if period%p.Tick != 0 {
		t.Errorf("%+v: the period is not a whole number of ticks of %d", l, p.Tick)
	}
	exact := func(what string, factors ...int64) {
		product := big.NewInt(1)
		for _, f := range factors {
			product.Mul(product, big.NewInt(f))
		}
		if product.BitLen() > 52 {
			t.Errorf("%+v: %s is %v, above 2^52", l, what, product)
		}
	}
	if p.Kernel == kernel.Meter {
		rate := big.NewRat(l.Count, period/p.Tick)
		if rate.Num().Int64() != p.Drain || rate.Denom().Int64() != p.Unit {
			t.Errorf("%+v: %v units a tick, and the plan has %d/%d", l, rate, p.Drain, p.Unit)
		}
		exact("the size", p.Capacity, p.Unit)
		exact("the size with a tick's drain", 1, p.Size+p.Drain)
		exact("the time to drain", p.Size/p.Drain+1, p.Tick)
		if p.Size != p.Capacity*p.Unit || p.Capacity < 1 {
			t.Errorf("%+v: the size is %d, the capacity %d units of %d", l, p.Size, p.Capacity, p.Unit)
		}
		return
	}
	if p.Span*p.Tick != period || p.Capacity != l.Count {
		t.Errorf("%+v: a span of %d and a capacity of %d", l, p.Span, p.Capacity)
	}
	if p.Kernel == kernel.Window {
		exact("a full window", p.Capacity, p.Span)
	}
}

// checkLogPlan checks that a unit taken in the last microsecond of its tick counts for a whole period, and that a
// shorter span would not be enough. A unit therefore counts for less than two ticks too long.
func checkLogPlan(t *testing.T, p *sluice.Plan) {
	t.Helper()
	period := p.Limit.Period.Microseconds()
	counts := func(span int64) int64 { return span*p.Tick - (p.Tick - 1) }
	if counts(p.Span) < period || counts(p.Span-1) >= period || p.Capacity != p.Limit.Count {
		t.Errorf("%+v: ticks of %d, a span of %d and a capacity of %d", p.Limit, p.Tick, p.Span, p.Capacity)
	}
	coarsest := max(1, period>>15+1)
	switch {
	case p.Limit.Algorithm == sluice.SlidingWindowLogExact:
		coarsest = max(1, period>>51*1000)
	case p.Limit.Count > 1024:
		coarsest = period>>5 + 1
	}
	if p.Tick > coarsest {
		t.Errorf("%+v: ticks of %d µs, want %d at most", p.Limit, p.Tick, coarsest)
	}
}

func TestPlanErrors(t *testing.T) {
	for want, l := range map[string]sluice.Limit{
		"the count is 0, and must be at least 1":                                        {Period: time.Second},
		"the period is 0s, and must be positive":                                        {Count: 1},
		"the period 1.5µs is not a whole number of microseconds":                        {Count: 1, Period: 1500},
		"the burst is -1, and must be at least 1":                                       {Count: 1, Period: time.Second, Burst: -1},
		"algorithm(7) is not an algorithm":                                              {Count: 1, Period: time.Second, Algorithm: 7},
		"fixed_window has no burst: leave it out":                                       {Count: 1, Period: time.Second, Burst: 1, Algorithm: sluice.FixedWindow},
		"a log counts at most 4294967295":                                               {Count: 1 << 32, Period: time.Second, Algorithm: sluice.SlidingWindowLog},
		"an exact log has at most 1048576 units":                                        {Count: 1<<20 + 1, Period: time.Second, Algorithm: sluice.SlidingWindowLogExact},
		"limit 1/36500d burst 1: a burst of 1 takes more than 70":                       {Count: 1, Period: 36500 * day},
		"a burst of 100000 takes more than 70 years to drain":                           {Count: 1, Period: day, Burst: 100_000},
		"limit 9223372036854775807/second burst 9223372036854775807":                    {Count: math.MaxInt64, Period: time.Second},
		"limit 9223372036854775807/1µs: the numbers are too large":                      {Count: math.MaxInt64, Period: time.Microsecond, Algorithm: sluice.FixedWindow},
		"limit 5/month from 32: the month begins on day 32, which must be from 1 to 31": {Count: 5, MonthDay: 32, Algorithm: sluice.FixedWindow},
		"the period of a month of the calendar is 720h0m0s":                             {Count: 5, MonthDay: 1, Period: 30 * day, Algorithm: sluice.FixedWindow},
		"limit 5/month: token_bucket does not count by the calendar: use fixed_window":  {Count: 5, MonthDay: 1},
		"a month of the calendar has no burst":                                          {Count: 5, MonthDay: 1, Burst: 5, Algorithm: sluice.FixedWindow},
		"limit 2251799813685249/month: the numbers are too large":                       {Count: 1<<51 + 1, MonthDay: 1, Algorithm: sluice.FixedWindow},
		// This number of microseconds is not a multiple of a coarser tick.
		"limit 1000003/27h46m40.000003s: the numbers are too large": {Count: 1_000_003, Period: 100_000_000_003 * time.Microsecond, Algorithm: sluice.FixedWindow},
	} {
		p, err := sluice.NewPlan(l)
		if err == nil || p != nil || !strings.HasPrefix(err.Error(), "limit ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v %v: %v, %v; want the error %q", l.Algorithm, l, p, err, want)
		}
	}
	p := monthly(t, 5, 15)
	if again, err := sluice.NewPlan(p.Limit); err != nil || *again != *p {
		t.Errorf("the plan of %+v is %+v; NewPlan of its Limit: %v, %+v", p.Limit, p, err, again)
	}
}

// TestFingerprints checks that limits share a fingerprint exactly if their states have the same meaning.
func TestFingerprints(t *testing.T) {
	page, err := os.ReadFile("testdata/fingerprints.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]string{}
	for line := range strings.Lines(string(page)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "= ")
		if !ok {
			continue
		}
		limits := strings.Split(group, "; ")
		first := plantest.Plan(t, limits[0]).Fingerprint
		if other, taken := seen[first]; taken {
			t.Errorf("%s and %s share a fingerprint", other, group)
		}
		seen[first] = group
		for _, limit := range limits[1:] {
			if plantest.Plan(t, limit).Fingerprint != first {
				t.Errorf("%s and %s do not share a fingerprint", limits[0], limit)
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d groups", len(seen))
	}
}

// TestFingerprintText checks the texts that fingerprints are hashes of. They must never change, because states outlive
// processes.
func TestFingerprintText(t *testing.T) {
	for text, l := range map[string]sluice.Limit{
		"0 1 100000 1 0 false":     {Count: 10, Period: time.Second},
		"1 1 0 0 1000000 false":    {Count: 10, Period: time.Second, Algorithm: sluice.FixedWindow},
		"1 1 0 0 1000000 true":     {Count: 10, Period: time.Second, Algorithm: sluice.SlidingWindowCounter},
		"2 109864 0 0 32769 false": {Count: 10, Period: time.Hour, Algorithm: sluice.SlidingWindowLog},
		"2 2000000 0 0 33 false":   {Count: 1025, Period: 64 * time.Second, Algorithm: sluice.SlidingWindowLog},
		"2 1 0 0 1000000 true":     {Count: 10, Period: time.Second, Algorithm: sluice.SlidingWindowLogExact},
		"month 15":                 {Count: 10, MonthDay: 15, Algorithm: sluice.FixedWindow},
	} {
		h := fnv.New64a()
		h.Write([]byte(text))
		if got := plan(t, l).Fingerprint; got != h.Sum64() {
			t.Errorf("%v: fingerprint %x, want that of %q", l, got, text)
		}
	}
}

func TestWithMost(t *testing.T) {
	hour := sluice.Limit{Count: 999_983, Period: time.Hour, Burst: 10}
	for _, test := range []struct {
		limit      sluice.Limit
		units      int64
		most, tick int64
		wrong      string
	}{
		{limit: sluice.Limit{Count: 10, Period: time.Second}, units: 25, most: 25, tick: 1},
		{limit: sluice.Limit{Count: 10, Period: time.Second}, units: 3, most: 10, tick: 1},
		{limit: hour, units: 11, most: 11, tick: 1},
		{limit: hour, units: 1_000_000, most: 1_000_000, tick: 1000},
		{limit: sluice.Limit{Count: 100, Period: 30 * day, Algorithm: sluice.FixedWindow}, units: 1000, most: 1000, tick: 1000},
		{limit: sluice.Limit{Count: 10, Period: time.Hour, Algorithm: sluice.SlidingWindowLog}, units: 2048, most: 2048, tick: 109_864},
		{limit: sluice.Limit{Count: 10, Period: time.Hour, Algorithm: sluice.SlidingWindowLog}, units: 2049, wrong: "keeps at most 2048 units"},
		{limit: sluice.Limit{Count: 10, Period: time.Hour, Algorithm: sluice.SlidingWindowLogExact}, units: 1<<21 + 1, wrong: "keeps at most 2097152 units"},
		{limit: sluice.Limit{Count: 1, Period: day}, units: 100_000, wrong: "a level of 100000 takes more than 70 years"},
		{limit: sluice.Limit{Count: 7, Period: day, Algorithm: sluice.FixedWindow}, units: 1 << 50, wrong: "too large to be counted exactly"},
	} {
		p := plan(t, test.limit)
		q, err := p.WithMost(test.units)
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) || !errors.Is(err, sluice.ErrUsage) {
				t.Errorf("%v with %d: error %v, want %q", test.limit, test.units, err, test.wrong)
			}
			continue
		}
		if err != nil || q.Most != test.most || q.Tick != test.tick || q.Fingerprint != p.Fingerprint || q.Capacity != p.Capacity || !q.Fixed || p.Most != p.Capacity {
			t.Errorf("%v with %d: %+v, %v; want %d in ticks of %d", test.limit, test.units, q, err, test.most, test.tick)
		}
	}
	places, err := sluice.NewInFlight(3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := places.WithMost(4); !errors.Is(err, sluice.ErrUsage) {
		t.Errorf("permits in flight: %v", err)
	}
}

func monthly(t testing.TB, count int64, day int) *sluice.Plan {
	t.Helper()
	return plan(t, sluice.Limit{Count: count, MonthDay: day, Algorithm: sluice.FixedWindow})
}

// NewDistinct accepts only a count and a period that can be counted exactly. Undo gives back a new value, but not one
// that counted before.
func TestDistinct(t *testing.T) {
	t.Parallel()
	for _, l := range []sluice.Limit{
		{}, {Count: 1}, {Period: time.Hour}, {Count: 1001, Period: time.Hour}, {Count: -1, Period: time.Hour},
		{Count: 1, Period: 36 * 366 * 24 * time.Hour}, {Count: 1, Period: time.Nanosecond}, {Count: 1, Period: time.Hour, Burst: 2},
		{Count: 1, Period: time.Hour, Algorithm: sluice.GCRA}, {Count: 1, MonthDay: 1},
	} {
		if p, err := sluice.NewDistinct(l); !errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%+v: %v, %v", l, p, err)
		}
	}
	p := plantest.Distinct(t, "1000/hour")
	if same := plantest.Distinct(t, "5/hour"); p.Fingerprint != same.Fingerprint || p.AlgorithmName() != "distinct" || p.String() != "1000/hour" {
		t.Errorf("%v: %+v", p, p)
	}
	if other := plantest.Distinct(t, "1000/minute"); p.Fingerprint == other.Fingerprint {
		t.Error("another period has the same fingerprint")
	}
	if _, err := p.WithMost(2000); !errors.Is(err, sluice.ErrUsage) {
		t.Errorf("WithMost: %v", err)
	}
	c, r := sluice.Charge{Plan: p, Cost: 1, Permit: 7}, sluice.Receipt{}
	r.Fits, r.Now, r.Tick, r.Used = true, plantest.Start, plantest.Start, 1
	if u := c.Undo(&r); u.Cost >= 0 || u.Permit != 7 || u.Until != plantest.Start+time.Hour.Microseconds() {
		t.Errorf("a new value is undone by %+v", u)
	}
	r.Prev = plantest.Start + 1
	if u := c.Undo(&r); u.Cost != 0 {
		t.Errorf("a value that counted before is undone by %+v", u)
	}
}
