package telemetry

import (
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"
)

// MaxUpstreams is how many upstreams of a gateway are counted separately. Further upstreams are counted together as
// OtherUpstreams.
const (
	MaxUpstreams   = 100
	OtherUpstreams = "*other" // no upstream has this name
)

// UpstreamError is the reason why a request got no response from an upstream.
type UpstreamError uint8

const (
	ConnectError   UpstreamError = iota // no connection
	TLSError                            // the TLS handshake failed, for example because of an expired certificate
	TimeoutError                        // no head of a response in time
	ClosedError                         // the connection was closed or reset before the head of the response
	MalformedError                      // the response is not HTTP, or not valid for this request
	CanceledError                       // the client left, or the body of the request broke off
	OtherError
	UpstreamErrors int = iota
)

var upstreamErrorNames = [UpstreamErrors]string{"connect", "tls", "timeout", "closed", "malformed", "canceled", "other"}

// String returns connect, tls, timeout, closed, malformed, canceled or other.
func (e UpstreamError) String() string { return upstreamErrorNames[e] }

// StatusClasses is the number of classes of status codes, 1xx to 5xx. The only 1xx status that is counted is 101,
// because all others precede a response.
const StatusClasses = 5

// classOf returns the index of the class of a status.
func classOf(status int) int { return min(max(status/100, 1), StatusClasses) - 1 }

// upstreamBounds are the bounds of the histograms of upstreams.
var upstreamBounds = func() (all []time.Duration) {
	all = []time.Duration{500 * time.Microsecond, 700 * time.Microsecond}
	for unit := time.Millisecond; unit < 10*time.Second; unit *= 10 {
		all = append(all, unit, 3*unit/2, 2*unit, 3*unit, 5*unit, 7*unit)
	}
	return append(all, 10*time.Second, 15*time.Second, 20*time.Second, 30*time.Second, time.Minute)
}()

const upstreamBuckets = 32 // one more than upstreamBounds

func upstreamBucket(d time.Duration) int {
	i, _ := slices.BinarySearch(upstreamBounds, d)
	return i
}

// For each step, an upstream has a row of counts with these columns: responses by class of status, errors by kind, the
// maximum of requests under way, and the numbers of requests by the time that they waited (see upstreamBounds).
const (
	errorColumn     = StatusClasses
	inFlightColumn  = errorColumn + UpstreamErrors
	waitColumn      = inFlightColumn + 1
	upstreamColumns = waitColumn + upstreamBuckets
)

type (
	upstreamStep   = [upstreamColumns]uint32
	upstreamSeries = timed[upstreamStep]
)

// UpstreamStats counts the requests to one upstream, by status or error, and the time until the head of the response.
// It is safe for concurrent use.
type UpstreamStats struct {
	name  string
	cells []upstreamCell // stripes: see counters.go
}

// upstreamCell is a stripe of an upstream's counters.
type upstreamCell struct {
	inFlight atomic.Int64
	answered [StatusClasses][upstreamBuckets]atomic.Uint64
	took     [StatusClasses]atomic.Int64
	waited   [upstreamBuckets]atomic.Uint64 // the time until a TimeoutError or a CanceledError
	errors   [UpstreamErrors]atomic.Uint64
	_        [64]byte
}

// NewUpstreamStats returns the counters of an upstream. The name labels metrics, so it must come from the
// configuration.
func NewUpstreamStats(name string) *UpstreamStats {
	return &UpstreamStats{name: clip(name, maxName), cells: make([]upstreamCell, stripes())}
}

// Name returns the name of the upstream.
func (u *UpstreamStats) Name() string { return u.name }

// UpstreamCall counts one request to an upstream. Call either Answered or Failed, once.
type UpstreamCall struct {
	cell  *upstreamCell
	began time.Duration
}

// epoch is the base of all times of calls. time.Since reads only one clock, but time.Now reads two.
var epoch = time.Now()

// Begin counts a request as in flight, until Answered or Failed is called.
func (u *UpstreamStats) Begin() UpstreamCall {
	var here byte // its address differs between goroutines
	cell := &u.cells[stripeAt(unsafe.Pointer(&here))]
	cell.inFlight.Add(1)
	return UpstreamCall{cell, time.Since(epoch)}
}

// Elapsed returns the time since Begin.
func (c UpstreamCall) Elapsed() time.Duration { return time.Since(epoch) - c.began }

// Answered counts a response by its status and by the time until its head.
func (c UpstreamCall) Answered(status int, took time.Duration) {
	class := classOf(status)
	c.cell.answered[class][upstreamBucket(took)].Add(1)
	c.cell.took[class].Add(int64(took))
	c.cell.inFlight.Add(-1)
}

// Failed counts a request that ended without a response. For a TimeoutError or a CanceledError, it also counts the time
// until then.
func (c UpstreamCall) Failed(kind UpstreamError, took time.Duration) {
	c.cell.errors[kind].Add(1)
	if kind == TimeoutError || kind == CanceledError {
		c.cell.waited[upstreamBucket(took)].Add(1)
	}
	c.cell.inFlight.Add(-1)
}

// InFlight returns the number of requests under way.
func (u *UpstreamStats) InFlight() uint64 {
	n := int64(0)
	for i := range u.cells {
		n += u.cells[i].inFlight.Load()
	}
	return uint64(max(n, 0)) // n may be negative because the stripes are not read at the same moment
}

// UpstreamTotals has the counts of one upstream on this instance since its start.
type UpstreamTotals struct {
	Took   [StatusClasses]Histogram // time until the head of a response
	Errors [UpstreamErrors]uint64
}

// Totals returns the counts since the start.
func (u *UpstreamStats) Totals() (t UpstreamTotals) {
	for class := range t.Took {
		t.Took[class] = Histogram{Bounds: upstreamBounds, Counts: make([]uint64, upstreamBuckets)}
	}
	for i := range u.cells {
		cell := &u.cells[i]
		for class := range t.Took {
			h := &t.Took[class]
			for b := range h.Counts {
				h.Counts[b] += cell.answered[class][b].Load()
			}
			h.Sum += time.Duration(cell.took[class].Load())
		}
		for kind := range t.Errors {
			t.Errors[kind] += cell.errors[kind].Load()
		}
	}
	return t
}

// upstreamColumn has the counts of an upstream since the start, without the requests under way.
type upstreamColumn [upstreamColumns]uint64

func (u *UpstreamStats) read() (sum upstreamColumn) {
	t := u.Totals()
	for class := range t.Took {
		for b, n := range t.Took[class].Counts {
			sum[class] += n
			sum[waitColumn+b] += n
		}
	}
	copy(sum[errorColumn:], t.Errors[:])
	for i := range u.cells {
		for b := range u.cells[i].waited {
			sum[waitColumn+b] += u.cells[i].waited[b].Load()
		}
	}
	return sum
}

// countedUpstream has the counters and the history of an upstream. The recorder's lock guards it.
type countedUpstream struct {
	stats   *UpstreamStats
	sampled upstreamColumn // the counts in the history
	history *upstreamSeries
}

// sample moves the counts since the last sample to the history.
func (u *countedUpstream) sample(at int64) {
	sum := u.stats.read()
	added := sum
	for c, n := range u.sampled {
		added[c] -= n
	}
	u.sampled = sum
	u.history.add(at, added[:])
	under := u.stats.InFlight()
	raise(&u.history.recent, under)
	raise(&u.history.days, under)
}

// raise sets the maximum of requests under way in the latest step to n, if n is larger.
func raise(s *steps[upstreamStep], n uint64) {
	most := &s.cell(s.last)[inFlightColumn]
	*most = max(*most, uint32(min(n, math.MaxUint32)))
}

// inFlight returns the number of requests under way by upstream.
func (h *timeline) inFlight() map[string]uint64 {
	if len(h.upstreams) == 0 {
		return nil
	}
	all := make(map[string]uint64, len(h.upstreams))
	for _, u := range h.upstreams {
		all[u.stats.name] = u.stats.InFlight()
	}
	return all
}

// upstreamPrefix precedes the name of an upstream in a post. No rule has such a name.
const upstreamPrefix = "*upstream:"

// clipUpstreams removes upstreams from a post if their names are too long, or if there are too many upstreams. An
// instance makes no such posts, but a post comes from the shared store, and may have any content.
func (i *Instance) clipUpstreams() {
	for name := range i.InFlight {
		if len(i.InFlight) > MaxUpstreams+1 || len(name) > maxName {
			delete(i.InFlight, name)
		}
	}
}

// UpstreamCounts counts the requests to an upstream that ended in one step.
type UpstreamCounts struct {
	Statuses [StatusClasses]uint64  // by class
	Errors   [UpstreamErrors]uint64 // requests without a response, by reason
	// InFlight is the sum, over instances, of each instance's largest number of requests in flight. The number is
	// sampled once a second.
	InFlight uint64

	waits [upstreamBuckets]uint64
}

func countsOf(s *upstreamStep) (c UpstreamCounts) {
	for i := range c.Statuses {
		c.Statuses[i] = uint64(s[i])
	}
	for i := range c.Errors {
		c.Errors[i] = uint64(s[errorColumn+i])
	}
	c.InFlight = uint64(s[inFlightColumn])
	for i := range c.waits {
		c.waits[i] = uint64(s[waitColumn+i])
	}
	return c
}

// Add adds the counts of another step. InFlight becomes the larger number of both steps.
func (c *UpstreamCounts) Add(o *UpstreamCounts) {
	addTo(c.Statuses[:], o.Statuses[:])
	addTo(c.Errors[:], o.Errors[:])
	addTo(c.waits[:], o.waits[:])
	c.InFlight = max(c.InFlight, o.InFlight)
}

// Ended returns the number of requests that ended, except canceled ones (see [CanceledError]).
func (c *UpstreamCounts) Ended() uint64 { return totalOf(c.Statuses[:]) + c.AllErrors() }

// AllErrors returns the number of requests without a response, except canceled ones.
func (c *UpstreamCounts) AllErrors() uint64 { return totalOf(c.Errors[:]) - c.Errors[CanceledError] }

// Failures returns the number of requests that ended with a status of 5xx or without a response, except canceled ones.
func (c *UpstreamCounts) Failures() uint64 { return c.Statuses[StatusClasses-1] + c.AllErrors() }

// Latency returns the time until the head of the response. Requests that timed out or were canceled count with the
// time until that moment.
func (c *UpstreamCounts) Latency() Latency { return latencyOf(c.waits[:], upstreamBounds) }

// Upstream has the counts of one upstream of the gateways.
type Upstream struct {
	Name     string
	InFlight uint64           // requests in flight now
	Recent   []UpstreamCounts // one for each Step, the latest last, at most RecentSteps
	// Usual is the latency in the last hour of normal operation. The last ten minutes do not count, and neither do
	// steps without requests, or steps in which the upstream was slow. After a start, Usual.Count is small or 0.
	Usual Latency

	long []UpstreamCounts // one for each LongStep
}

// Latest returns the counts of the last minute.
func (u *Upstream) Latest() UpstreamCounts { return u.Last(minuteSteps) }

// Last returns the counts of the latest n steps of Recent, including the current one.
func (u *Upstream) Last(n int) (c UpstreamCounts) {
	for i := max(len(u.Recent)-n, 0); i < len(u.Recent); i++ {
		c.Add(&u.Recent[i])
	}
	return c
}

// fleetUpstreams are the counts of upstreams on several instances, by name.
type fleetUpstreams map[string]*upstreamSeries

// copyUpstreams returns the counts of this instance.
func (h *timeline) copyUpstreams() fleetUpstreams {
	all := make(fleetUpstreams, len(h.upstreams))
	for _, u := range h.upstreams {
		s := newTimed[upstreamStep](h.at)
		s.addAll(u.history)
		all[u.stats.name] = s
	}
	return all
}

// sum returns a function that looks up the series of an upstream by name, and makes the series if necessary. The counts
// of other instances are added to this series. If there are too many upstreams, the function returns nil.
func (f fleetUpstreams) sum(at int64) func(name string) *upstreamSeries {
	return func(name string) *upstreamSeries {
		if f[name] == nil && len(f) <= 2*MaxUpstreams {
			f[name] = newTimed[upstreamStep](at)
		}
		return f[name]
	}
}

// view returns the upstreams of the instances of a view.
func (f fleetUpstreams) view(v *View) (all []Upstream) {
	inFlight := map[string]uint64{}
	for _, i := range v.Instances {
		for name, n := range i.InFlight {
			if i.Stale {
				n = 0
			}
			inFlight[name] += n
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inFlight)) {
		u := Upstream{Name: name, InFlight: inFlight[name]}
		if s := f[name]; s != nil {
			u.Recent = upstreamCounts(&s.recent, recentStep(v.Since.Unix()))
			u.long = upstreamCounts(&s.days, longStep(v.Since.Unix()))
		}
		u.Usual = u.usual()
		all = append(all, u)
	}
	return all
}

// upstreamCounts returns the counts of all steps from the given step number on.
func upstreamCounts(s *steps[upstreamStep], from int64) (all []UpstreamCounts) {
	for n := s.since(from); n <= s.last; n++ {
		all = append(all, countsOf(s.cell(n)))
	}
	return all
}
