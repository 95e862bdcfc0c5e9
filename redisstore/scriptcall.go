package redisstore

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

//go:embed take.lua
var script string

// Flags of a charge, as take.lua reads them.
const (
	flagShadow = 1 << iota
	flagLast
	flagLook
	flagCoalesced
	flagDefer
	flagUntil
	flagOwe
)

// anyCost bounds the numbers in a call. No capacity of a plan is larger, and no time is later.
const anyCost = 1 << 52

// watching has numbers for each lock of a request: first the position of the reply to the charge of
// [sluice.NewOnce], or 0; then the number of charges that are offences if they do not fit; and then the positions
// of the replies to these charges. Positions are counted from 1.
type watching []uint16

// request is one Take. The caller owns it, passes it to a worker, and gets it back through done.
type request struct {
	names   []byte // the names of all states, one after the other
	charges []charge
	watches watching
	slot    uint16 // hash slot of all charges, on a cluster

	follows bool // goes in the same call as the previous request in the queue
	weight  int  // number of charges of this request and of the requests that follow it
	look    bool
	state   atomic.Uint32 // queued, later sent or cancelled
	done    chan struct{}
	now     float64
	place   int    // index of the request in its call
	group   int    // index of its group in the call: see coalesced
	index   int    // index of the request in its group
	n       int    // number of requests in the group
	reply   string // packed numbers of the reply to the group
	// oldest has the fourth number of the reply to each charge. For a log that denies, it is the tick at which the
	// oldest unit expires, or 0 if the script did not report it. For other charges it is not used.
	oldest []int64
	sentAt time.Time // a time before the request was sent
	err    error
}

type charge struct {
	plan       *sluice.Plan
	start, end int // position of its name in names
	cost       float64
	beyond     int64 // units of the cost above anyCost, which are always cut
	flags      byte
	watches    int     // for a lock: index of its first number in request.watches
	until      float64 // with flagUntil
	permit     uint64  // number of the permit
}

const (
	queued = iota
	sent
	cancelled
)

// set sets the charges of r. It copies their keys, because the memory of the strings may be reused.
func (r *request) set(n *naming, charges []sluice.Charge, look bool) {
	r.names, r.charges, r.watches = r.names[:0], r.charges[:0], r.watches[:0]
	for i := range charges {
		r.add(n, &charges[i], look)
		if charges[i].Plan.Kernel == kernel.Lock {
			r.watch(charges[:i+1])
		}
	}
	r.charges[len(charges)-1].flags |= flagLast
	r.look, r.follows, r.weight = look, false, len(charges)
	r.state.Store(queued)
	r.reply, r.err = "", nil
}

func (r *request) add(n *naming, c *sluice.Charge, look bool) {
	start := len(r.names)
	r.names = n.append(r.names, c)
	var flags byte
	if !c.Refuses() {
		flags |= flagShadow
	}
	if owes(c) {
		flags |= flagOwe
	}
	if look {
		flags |= flagLook
	}
	out := charge{plan: c.Plan, start: start, end: len(r.names), cost: within(c.Cost)}
	if c.Cost > anyCost {
		out.beyond = c.Cost - anyCost
	}
	if c.Plan.Kernel.Permits() {
		out.permit, out.cost = c.Permit, permitCost(c.Cost)
	}
	if c.Cost < 0 && c.Until != 0 {
		out.until = within(c.Until)
		flags |= flagUntil
	}
	out.flags = flags
	r.charges = append(r.charges, out)
}

// owes reports whether c has Owe set and the script heeds it. The reply to c then has one more number.
func owes(c *sluice.Charge) bool {
	return c.Owe && c.Cost > 0 && c.Plan.Kernel != kernel.Lock && !c.Plan.Kernel.Permits()
}

func within(n int64) float64 { return float64(min(max(n, -anyCost), anyCost)) }

// permitCost returns the cost of a permit as the script expects it.
func permitCost(cost int64) float64 {
	if cost == sluice.All {
		return -2
	}
	return float64(min(max(cost, -1), 2))
}

// watch sets the watches of the last charge, which is a lock: see [sluice.Offends].
func (r *request) watch(charges []sluice.Charge) {
	last, at := len(charges)-1, len(r.watches)
	r.charges[last].watches = at
	r.watches = append(r.watches, 0, 0)
	first := uint16(1)
	for i := range charges[:last] {
		if charges[i].Plan.Once {
			r.watches[at] = first
		} else if charges[i].Key == charges[last].Key && !charges[i].Owe {
			r.watches[at+1]++
			r.watches = append(r.watches, first)
		}
		first += uint16(r.charges[i].numbers())
	}
}

// oneSlot sets the slot of r to that of its first charge, and reports whether all charges have that slot.
func (r *request) oneSlot() bool {
	for i, c := range r.charges {
		s := slot(r.names[c.start:c.end])
		if i == 0 {
			r.slot = s
		} else if s != r.slot {
			return false
		}
	}
	return true
}

// name returns the name of a charge's state. The string is valid until r is set again.
func (r *request) name(c *charge) string {
	return unsafe.String(&r.names[c.start], c.end-c.start)
}

// numbers returns how many numbers the reply to r has.
func (r *request) numbers() int {
	n := 0
	for i := range r.charges {
		n += r.charges[i].numbers()
		if r.n > 1 {
			n++
		}
	}
	return n
}

// numbers returns how many numbers the reply to a charge has, for a group of one request.
func (c *charge) numbers() int {
	n := 4
	switch c.plan.Kernel {
	case kernel.Meter, kernel.InFlight:
		n = 1
	case kernel.Window, kernel.Lock:
		n = 3
	}
	if c.flags&flagOwe != 0 {
		n++
	}
	return n
}

// scriptCall is one run of the script, for any number of requests.
type scriptCall struct {
	requests []*request
	movesFor time.Duration // the longest time that it waits for its keys, if they move
	keys     []string
	arg      []byte

	groups   []coalesced
	longs    []string          // the keys of states that can be long
	keyIDs   []uint16          // for each charge of the groups, the index of its key in keys or longs
	ids      map[string]uint16 // indexes in keys or longs, by key
	lastUser []int             // for each key, the last group that has it
	lastLong []int             // for each of longs, the last group that has it
	plans    []*sluice.Plan
	siblings *kernel.Siblings // the store's
}

// pack packs the requests as take.lua reads them.
func (c *scriptCall) pack() {
	c.coalesce()
	short := uint16(len(c.keys))
	c.keys = append(c.keys, c.longs...)

	arg := append(c.arg[:0], 0, 0, 0, 0)
	c.plans = c.plans[:0]
	for _, g := range c.groups {
		for i := range g.head.charges {
			if p := g.head.charges[i].plan; !slices.Contains(c.plans, p) {
				c.plans = append(c.plans, p)
				c.siblings.Most(&p.Plan)
			}
		}
	}
	for _, p := range c.plans {
		arg = appendPlan(arg, p, c.siblings.Most(&p.Plan))
	}
	binary.LittleEndian.PutUint16(arg, short)
	binary.LittleEndian.PutUint16(arg[2:], uint16(len(c.plans)))
	for n := range c.groups {
		for i := range c.groups[n].head.charges {
			arg = c.appendCharge(arg, n, i, short)
		}
	}
	c.arg = arg
}

// appendCharge packs charge i of group n.
func (c *scriptCall) appendCharge(arg []byte, n, i int, short uint16) []byte {
	g := &c.groups[n]
	charge, id := &g.head.charges[i], c.keyIDs[g.at+i]
	flags := charge.flags
	if *c.lastUserOf(charge, id) != n {
		flags |= flagDefer
	}
	if long(charge.plan) {
		id += short
	}
	if i == 0 && g.n > 1 {
		flags |= flagCoalesced
	}
	arg = binary.LittleEndian.AppendUint16(arg, id+1)
	arg = binary.LittleEndian.AppendUint16(arg, uint16(slices.Index(c.plans, charge.plan)+1))
	arg = appendFloats(append(arg, flags), charge.cost)
	if flags&flagUntil != 0 {
		arg = appendFloats(arg, charge.until)
	}
	if flags&flagCoalesced != 0 {
		arg = binary.LittleEndian.AppendUint16(arg, uint16(g.n))
	}
	switch charge.plan.Kernel {
	case kernel.InFlight, kernel.Distinct:
		arg = binary.BigEndian.AppendUint64(arg, charge.permit)
	case kernel.Lock:
		watches := g.head.watches[charge.watches:]
		for _, n := range watches[:2+watches[1]] {
			arg = binary.LittleEndian.AppendUint16(arg, n)
		}
	}
	return arg
}

// long reports whether a state of p can be long. The script does not read such a state as a whole.
func long(p *sluice.Plan) bool { return p.Kernel == kernel.ExactLog || p.Kernel.Permits() }

// appendPlan packs the numbers of a plan that the script needs. units is the plan's Most, or a larger one.
func appendPlan(dst []byte, p *sluice.Plan, units int64) []byte {
	dst = append(dst, byte(p.Kernel))
	tick, capacity, most := float64(p.Tick), float64(p.Capacity), float64(units)
	switch {
	case p.Kernel == kernel.Meter:
		return appendFloats(dst, tick, capacity, most, meterGrid(p), float64(p.Unit), float64(p.Drain))
	case p.Kernel == kernel.Lock:
		l := p.Lockout
		return appendFloats(dst, float64(l.First), float64(l.Most), 0, float64(l.Forget), float64(l.Factor), 0)
	case p.Kernel == kernel.Window:
		mode := 0.0
		switch {
		case p.Sliding:
			mode = 1
		case p.MonthDay > 0:
			mode = 1 + float64(p.MonthDay)
		}
		return appendFloats(dst, tick, capacity, most, windowStay(p), float64(p.Span), mode)
	}
	width := 0.0
	if p.Kernel == kernel.ExactLog {
		width = entryWidth(p.Span)
	}
	return appendFloats(dst, tick, capacity, most, float64(max(1, p.Span*p.Tick/8)), float64(p.Span), width)
}

// meterGrid returns a length in microseconds. The expiry of a meter is rounded up to a multiple of it. The grid is
// the time in which eight units drain, whatever the tick. If a full meter, including its debt, has less than 64
// units, the grid is a microsecond instead. So the plans that share a state use one of two grids, and the state
// records which (see take.lua).
func meterGrid(p *sluice.Plan) float64 {
	if p.Most < 64 {
		return 1
	}
	return float64((8*p.Limit.Period.Microseconds() + p.Limit.Count - 1) / p.Limit.Count)
}

// windowStay returns how much longer, in microseconds, the state of a window is kept if more than half of the
// window is used. While such a state denies, it must expire later than new keys, so that volatile-ttl does not
// evict it. A new key can begin in the same window or, for a sliding window, in the next one, and expires
// accordingly.
func windowStay(p *sluice.Plan) float64 {
	stay := p.Limit.Period.Microseconds() / 8
	if p.Sliding {
		stay += p.Limit.Period.Microseconds()
	}
	return float64(stay)
}

// entryWidth returns the bytes of an entry in an exact log. An entry can hold a time of up to nine eighths of the
// span, so that entries are rarely renumbered.
func entryWidth(span int64) float64 {
	width := 1.0
	for size := 256.0; size < float64(span+span/8+2); size *= 256 {
		width++
	}
	return width
}

func appendFloats(dst []byte, values ...float64) []byte {
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
	}
	return dst
}

// unpack sets the reply of each request from the script's reply.
func (c *scriptCall) unpack(reply string) error {
	numbers := 1
	for _, r := range c.requests {
		r.n = c.groups[r.group].n
		if r.index == 0 {
			numbers += r.numbers()
		}
	}
	if len(reply) != 8*numbers {
		return &Error{BadReply, fmt.Errorf("the script's reply has %d bytes instead of %d", len(reply), 8*numbers)}
	}
	now := number(reply, 0)
	reply = reply[8:]
	for i, r := range c.requests {
		r.now, r.place = now, i
		if r.index > 0 {
			r.reply = c.groups[r.group].head.reply
			continue
		}
		n := 8 * r.numbers()
		r.reply, reply = reply[:n], reply[n:]
	}
	return nil
}

func number(reply string, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(reply[8*i : 8*i+8])))
}

// The script's replies for a foreign state: badText for a string, which it has deleted, and badType for another
// type, which stays.
const (
	badText = -1 << 53
	badType = -1 << 54
)

// receipts reads the receipts from the reply.
func (r *request) receipts(dst []sluice.Receipt) error {
	if err := r.foreign(); err != nil {
		return err
	}
	at, admitted := 0, r.admitted()
	r.oldest = r.oldest[:0]
	var values [5]int64
	for i := range dst {
		c := &r.charges[i]
		n := c.numbers()
		if r.n > 1 {
			n++
		}
		clear(values[:])
		for j := range n {
			v := number(r.reply, at+j)
			if values[j] = int64(v); float64(values[j]) != v || math.Abs(v) >= -badText {
				return &Error{BadReply, fmt.Errorf("the script's reply has the number %v, which is not an integer below 2^53", v)}
			}
		}
		at += n
		if r.n > 1 {
			values[0] = c.firstNumber(values[0], values[n-1], int64(r.index), admitted)
		}
		cut := int64(0)
		if c.flags&flagOwe != 0 {
			cut, values[n-1] = values[n-1], 0
			if cut > 0 {
				cut += c.beyond
			}
		}
		dst[i] = receipt(c.plan.Kernel, int64(r.now), [4]int64(values[:4]))
		dst[i].Cut = cut
		r.oldest = append(r.oldest, values[3])
	}
	return nil
}

// foreign returns an [*Error] that wraps a *ForeignState with the charges that have foreign states, or nil.
func (r *request) foreign() error {
	var e *ForeignState
	at := 0
	for i := range r.charges {
		c := &r.charges[i]
		if v := number(r.reply, at); v == badText || v == badType {
			if e == nil {
				e = new(ForeignState)
			}
			e.charges = append(e.charges, i)
			e.Keys = append(e.Keys, strings.Clone(r.name(c)))
			e.Deleted = append(e.Deleted, v == badText)
		}
		if at += c.numbers(); r.n > 1 {
			at++
		}
	}
	if e == nil {
		return nil
	}
	return &Error{Foreign, e}
}

func receipt(kind kernel.Kind, now int64, v [4]int64) sluice.Receipt {
	r := sluice.Receipt{Receipt: kernel.Receipt{Now: now, Used: v[0], Fits: v[0] >= 0}}
	if !r.Fits {
		r.Used = -1 - v[0]
	}
	switch kind {
	case kernel.Window, kernel.Lock:
		r.Tick, r.Prev = v[1], v[2]
	case kernel.Meter, kernel.InFlight:
	case kernel.Distinct:
		r.Tick, r.Wait, r.Prev = v[1], v[2], v[3]
	default:
		r.Tick, r.Wait = v[1], v[2]
	}
	return r
}
