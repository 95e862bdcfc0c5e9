package lease

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
)

// A fleet of 2 to 1,000 processes on one key, in virtual time: calls a decision and what is admitted less
// than by the exact limiter, against the horizon, which follows from the burst. It takes minutes, and is
// for the figures in the documentation: SLUICE_SIMULATE=1 go test -run Simulate -v ./lease
func TestSimulate(t *testing.T) {
	nodes, horizons, lasts := []int{2, 10, 100, 1000}, []time.Duration{25, 50, 100, 250}, 20*time.Second
	if os.Getenv("SLUICE_SIMULATE") == "" {
		nodes, horizons, lasts = []int{2, 30}, []time.Duration{250}, time.Second
	}
	const rate = 10_000
	for _, load := range []float64{0.5, 1, 2} {
		for _, n := range nodes {
			for _, h := range horizons {
				burst := int64(rate * 4 * h / 1000)
				p := plan(t, sluice.Limit{Count: rate, Period: time.Second, Burst: burst})
				if got := horizon(p); got != (h * time.Millisecond).Microseconds() {
					t.Fatalf("a burst of %d makes a horizon of %d µs, and not %v ms", burst, got, int64(h))
				}
				synctest.Test(t, func(t *testing.T) {
					o := run{plan: p, nodes: n, perSecond: rate * load, lasts: lasts, way: 300 * time.Microsecond}.do(t)
					under := 1 - float64(o.admitted)/float64(o.exact)
					t.Logf("load %.1f, %4d processes, horizon %3d ms: %.4f calls a decision, %.2f %% less, %d over", load, n, int64(h), float64(o.calls)/float64(o.asked), 100*under, o.over)
					if o.over > 0 || under > 0.35 {
						t.Errorf("%+v", o)
					}
				})
			}
		}
	}
}
