package telemetry

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice/policy"
)

// Counters are striped, so that cores do not wait for each other: each stripe has cache lines of its own. A decision
// chooses a stripe by the address of its request, which differs between goroutines.

const maxStripes = 16

var stripeShift = 64 - bits.Len(uint(min(maxStripes, runtime.GOMAXPROCS(0)*2))-1)

func stripes() int { return 1 << (64 - stripeShift) }

// stripeOf returns the stripe for a request.
func stripeOf(r *policy.Request) int { return stripeAt(unsafe.Pointer(r)) }

func stripeAt(p unsafe.Pointer) int {
	return int(uint64(uintptr(p)>>5) * 0x9E3779B97F4A7C15 >> stripeShift)
}

// These are columns of the counts of a rule, or of all requests. They follow the columns for the outcomes.
const (
	nearColumn    = Outcomes + iota // for a rule, decisions that left less than a fifth; for all requests, malformed requests
	blockedColumn                   // denials by a block, which are also in Deny
	columns
)

// column has the counts of a rule, or of all requests: see Counts, nearColumn and blockedColumn.
type column [columns]uint64

// minus returns the difference from an earlier column o.
func (c *column) minus(o *column) (d column) {
	for i := range c {
		d[i] = c[i] - o[i]
	}
	return d
}

func (c *column) isZero() bool { return *c == column{} }

// ruleCell is a stripe of a rule's counters.
type ruleCell struct {
	n     [columns]atomic.Uint64
	local atomic.Uint64
	_     [(64 - (columns+1)*8%64) % 64]byte
}

// ruleCounters count the outcomes of one rule since it was first seen.
type ruleCounters struct {
	name    string
	cells   []ruleCell
	sampled column  // the counts in the history
	history *series // nil: no traffic in the last two days
	costs   ruleCosts

	// denied and watched are the denials of automatic limits: see LoadDenials.
	denied, watched [Classes]atomic.Uint64
	loads           *ruleLoads // nil: the rule has no such limit, or no request yet
}

func newRuleCounters(name string) *ruleCounters {
	return &ruleCounters{name: name, cells: make([]ruleCell, stripes())}
}

func (c *ruleCounters) read() (sum column) {
	for i := range c.cells {
		for j := range sum {
			sum[j] += c.cells[i].n[j].Load()
		}
	}
	return sum
}

func (c *ruleCounters) totals() Totals {
	sum := c.read()
	t := Totals{Rule: c.name, Counts: Counts(sum[:Outcomes]), Near: sum[nearColumn]}
	for i := range c.cells {
		t.Local += c.cells[i].local.Load()
	}
	return t
}

// bounds are the bounds of the histograms of doors.
var bounds = []time.Duration{
	time.Microsecond, 2 * time.Microsecond, 5 * time.Microsecond,
	10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

const buckets = 23 // one more than bounds

// durations has the number of durations in each bucket.
type durations [buckets]uint64

// bucket returns the bucket of a duration.
func bucket(d time.Duration) int {
	for i, b := range bounds {
		if d <= b {
			return i
		}
	}
	return buckets - 1
}

func (s *durations) latency() Latency { return latencyOf(s[:], bounds) }

// latencyOf returns the latency of a histogram. The last bucket has only a lower bound.
func latencyOf(counts []uint64, bounds []time.Duration) Latency {
	l := Latency{}
	for _, n := range counts {
		l.Count += n
	}
	quantile := func(percent uint64) time.Duration {
		rank := (l.Count*percent + 99) / 100
		for i, n := range counts {
			if n >= rank {
				return bounds[min(i, len(bounds)-1)]
			}
			rank -= n
		}
		return 0
	}
	if l.Count > 0 {
		l.P50, l.P99 = quantile(50), quantile(99)
	}
	return l
}

// doorCell is a stripe of a door's counters. Repeated requests are not counted in n.
type doorCell struct {
	n                                           [Outcomes]atomic.Uint64
	exempt, malformed, blocked, repeated, local atomic.Uint64
	overloaded                                  [Classes]atomic.Uint64
	took                                        [buckets]atomic.Uint64
	sum                                         atomic.Int64
	_                                           [(64 - (Outcomes+5+Classes+buckets+1)*8%64) % 64]byte
}

type doorCounters struct {
	name  string
	cells []doorCell
}

func newDoorCounters(name string) *doorCounters {
	return &doorCounters{name: name, cells: make([]doorCell, stripes())}
}

func (c *doorCounters) totals() DoorTotals {
	t := DoorTotals{Door: c.name, Took: Histogram{Bounds: bounds, Counts: make([]uint64, buckets)}}
	for i := range c.cells {
		cell := &c.cells[i]
		for j := range t.Counts {
			t.Counts[j] += cell.n[j].Load()
		}
		t.Exempt += cell.exempt.Load()
		t.Malformed += cell.malformed.Load()
		t.Repeated += cell.repeated.Load()
		for class := range t.Overloaded {
			t.Overloaded[class] += cell.overloaded[class].Load()
		}
		for j := range t.Took.Counts {
			t.Took.Counts[j] += cell.took[j].Load()
		}
		t.Took.Sum += time.Duration(cell.sum.Load())
	}
	t.Counts[Allow] += t.Repeated
	return t
}
