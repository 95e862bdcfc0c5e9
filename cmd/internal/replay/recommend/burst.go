package recommend

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
)

// rates is how many rates the grid has. Limits are proposed with these rates: 1, 2, 3, 5, 10 and so on, the lowest
// first.
const rates = 33

// rate is Count units in each Period.
type rate struct {
	count  int64
	period time.Duration
}

var grid = func() (g [rates]rate) {
	i := 0
	for _, u := range []struct {
		period time.Duration
		most   int64
	}{{time.Hour, 50}, {time.Minute, 50}, {time.Second, 10_000}} {
		for n := int64(1); n <= u.most; n = nextRound(n + 1) {
			g[i] = rate{n, u.period}
			i++
		}
	}
	return g
}()

func (r rate) perSecond() float64 { return float64(r.count) / r.period.Seconds() }

func (r rate) limit(burst int64) string {
	return sluice.Limit{Count: r.count, Period: r.period, Burst: burst}.String()
}

// nextRound returns the least of 1, 2, 3, 5, 10, 20 and so on that is at least n.
func nextRound(n int64) int64 {
	for unit := int64(1); unit < math.MaxInt64/100; unit *= 10 {
		for _, d := range []int64{1, 2, 3, 5} {
			if n <= d*unit {
				return d * unit
			}
		}
	}
	return n
}

// peaks has, for each rate of the grid, the least burst of a token bucket that never denies.
type peaks [rates]int32

var ones = func() (p peaks) {
	for i := range p {
		p[i] = 1
	}
	return p
}()

// of returns the burst at a rate. Nil peaks stand for a single request.
func (p *peaks) of(i int) int64 {
	if p == nil {
		return 1
	}
	return int64(p[i])
}

// levels has, for each rate, the level of a bucket that never denies. In a bucket of Count units per Period, a unit
// weighs Period microseconds, and each microsecond drains Count, so that all numbers are whole.
type levels [rates]int64

// maxElapsed is a time after which every level is zero. It is far too short to overflow.
const maxElapsed = int64(400 * 24 * time.Hour / time.Microsecond)

// add counts a request that comes elapsed microseconds after the one before, and raises the peaks. The peaks have
// room for both reserved and cost.
func (l *levels) add(elapsed, reserved, cost int64, p *peaks) {
	elapsed = min(max(elapsed, 0), maxElapsed)
	for i := range l {
		weight := grid[i].period.Microseconds()
		before := max(0, l[i]-elapsed*grid[i].count)
		l[i] = min(before+weight*cost, math.MaxInt64/2)
		level := min(before+weight*max(reserved, cost), math.MaxInt64/2)
		if level > int64(p[i])*weight {
			p[i] = int32(min((level+weight-1)/weight, math.MaxInt32))
		}
	}
}

// first sets the levels of a subject that has made one request.
func (l *levels) first() {
	for i := range l {
		l[i] = grid[i].period.Microseconds()
	}
}

// percent formats a share for people.
func percent(x float64) string {
	x *= 100
	decimals := 2
	for y := math.Abs(x); y > 0 && y < 0.1 && decimals < 6; y *= 10 {
		decimals++
	}
	s := strconv.FormatFloat(x, 'f', decimals, 64)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".") + "%"
}

// sureness formats a confidence. It never rounds up.
func sureness(x float64) string { return percent(math.Floor(x*1e4) / 1e4) }
