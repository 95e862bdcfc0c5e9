package recommend

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
)

// rates is the number of rates in the grid. A proposed limit has one of these rates: 1, 2, 3, 5, 10 and so on an
// hour, a minute or a second, the lowest first.
const rates = 33

// rate is count units in each period.
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

// peaks has, for each rate of the grid, the least burst with which a token bucket denies no request.
type peaks [rates]int32

var ones = func() (p peaks) {
	for i := range p {
		p[i] = 1
	}
	return p
}()

// burst returns the burst at the rate with the index i. Nil peaks represent a single request.
func (p *peaks) burst(i int) int64 {
	if p == nil {
		return 1
	}
	return int64(p[i])
}

// levels has, for each rate, the level of a bucket that denies no request. In a bucket of count units per period, a
// unit adds as much to the level as the period has microseconds, and each microsecond drains count, so all numbers
// are whole.
type levels [rates]int64

// maxElapsed bounds elapsed times, so that their products with counts do not overflow.
const maxElapsed = int64(400 * 24 * time.Hour / time.Microsecond)

// add counts a request that comes elapsed microseconds after the previous one, and raises the peaks. The peaks have
// room for the larger of the reservation and the cost.
func (l *levels) add(elapsed, reservation, cost int64, p *peaks) {
	elapsed = min(max(elapsed, 0), maxElapsed)
	for i := range l {
		weight := grid[i].period.Microseconds()
		before := max(0, l[i]-elapsed*grid[i].count)
		l[i] = min(before+weight*cost, math.MaxInt64/2)
		level := min(before+weight*max(reservation, cost), math.MaxInt64/2)
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

// percent formats a fraction as a percentage.
func percent(x float64) string {
	x *= 100
	decimals := 2
	for y := math.Abs(x); y > 0 && y < 0.1 && decimals < 6; y *= 10 {
		decimals++
	}
	s := strconv.FormatFloat(x, 'f', decimals, 64)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".") + "%"
}

// sureness formats a confidence as a percentage, rounded down.
func sureness(x float64) string { return percent(math.Floor(x*1e4) / 1e4) }
