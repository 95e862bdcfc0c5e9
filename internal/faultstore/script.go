package faultstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
)

// Subject is the tested store, on which a history is played.
type Subject struct {
	// Takes has the Take of each process.
	Takes []func(wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error
	// Status returns numbers by name.
	Status func() map[string]int
	Close  func()
}

// Play plays the histories in a file. Each is played in virtual time, which starts at midnight, with a new shared
// store in memory. Before the first Take, open is called with the settings of the history.
//
//	== title
//	with NAME VALUE…              plays the history once for each value, in place of $NAME; or "NAME,NAME VALUE,VALUE…";
//	                              no name may begin with another name; ~ stands for a space
//	NAME = VALUE                  a setting for open
//	limit NAME LIMIT [ALGORITHM] [owe N]    or: limit NAME in_flight N, limit NAME penalty DURATION
//	fault NAME [times N] [one_in N] [for KEY…]    sets refused, unsent, frozen, mute, odd, writes (only writes are refused), late DURATION,
//	                              telling THERE BACK or none: for N calls, for one of N calls, and only for these keys
//	cut NAME, mend                starts or ends a fault, and waits until the store is unavailable, or is used again and
//	                              nothing is owed
//	wait DURATION, at DURATION    waits for a time from now, or until a time from midnight
//	close                         closes the subject
//	restart                       restarts the shared store, which loses all counts
//	clock DURATION                sets the clock of the shared store back
//	others N, silent BOOL         sets the number of other instances with heartbeats; sets whether heartbeats fail
//	used KEY LIMIT N              expects the number of units that the shared store has counted
//	calls N                       expects the number of calls to the shared store since the last such line
//	probes N                      expects the number of probes since the last such line
//	admitted KEY N                expects the number of admitted Takes of one charge since the last such line
//	status NAME=N…                expects numbers of the subject's status
//	until NAME=N [within D]       waits for a status, and fails if that takes longer than D, or a time outside of the range D..D
//	traffic DURATION CHARGE…      starts a Take at each interval, without waiting for the results; "traffic none" ends this
//	repeat N [every D] … end      plays the lines in between N times, with the number of the repetition in place of $i
//	[Nx [every DURATION]] [@PROCESS] CHARGE [+ CHARGE…] [-> RECEIPT [+ RECEIPT…][, admitted|refused] | N admitted]
//
// A charge is "KEY LIMIT", followed in any order by its cost (by default 1, or "all"), allow, deny or local, leased
// or synced, shadow, owe, place=N and nowait. A charge that begins with "shared" is charged to the shared store
// itself. A receipt is yes or no (whether it fits), the origin, and "left", "used", "wait" and "delay" with values;
// or "unsent" or "odd" for an error that reports that nothing was charged, or that values cannot be read. Numbers
// may be ranges, N..M.
func Play(t *testing.T, path string, memory func() TakerAt, open func(t *testing.T, sv *Store, settings map[string]string) Subject) {
	histories := testkit.Sections(t, path)
	for _, history := range histories {
		for _, lines := range variants(strings.Split(history.Text, "\n")) {
			t.Run(history.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := &play{
						t: t, open: open, memory: memory, began: time.Now(), random: rand.New(rand.NewPCG(seed.Of(t), 0)),
						settings: map[string]string{}, plans: map[string]*sluice.Plan{}, admitted: map[string]int64{},
					}
					p.clock = NewClocked(memory())
					p.sv = New(p.clock)
					defer func() {
						p.stop()
						if p.subject.Close != nil {
							p.subject.Close()
						}
					}()
					p.lines(lines)
				})
			})
		}
	}
	if len(histories) == 0 {
		t.Errorf("%s has no histories", path)
	}
}

// variants returns the lines of a history with each combination of values in place of names.
func variants(lines []string) [][]string {
	for i, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "with" {
			continue
		}
		var all [][]string
		rest := append(append([]string(nil), lines[:i]...), lines[i+1:]...)
		for _, values := range words[2:] {
			var pairs []string
			for j, name := range strings.Split(words[1], ",") {
				pairs = append(pairs, "$"+name, strings.ReplaceAll(strings.Split(values, ",")[j], "~", " "))
			}
			replaced := strings.NewReplacer(pairs...).Replace(strings.Join(rest, "\n"))
			all = append(all, variants(strings.Split(replaced, "\n"))...)
		}
		return all
	}
	return [][]string{lines}
}

type play struct {
	t        *testing.T
	open     func(t *testing.T, sv *Store, settings map[string]string) Subject
	memory   func() TakerAt
	began    time.Time
	mu       sync.Mutex
	random   *rand.Rand // guarded by mu
	settings map[string]string
	plans    map[string]*sluice.Plan
	clock    *Clocked
	sv       *Store
	subject  Subject
	calls    int64
	probes   int64
	admitted map[string]int64
	now      string // the present line
	traffic  chan struct{}
	running  sync.WaitGroup
}

// lines plays lines, and repeats the lines of repetitions.
func (p *play) lines(lines []string) {
	p.t.Helper()
	for i := 0; i < len(lines); i++ {
		words := strings.Fields(lines[i])
		if len(words) == 0 || words[0] != "repeat" {
			p.line(lines[i])
			continue
		}
		end := i + 1
		for end < len(lines) && strings.TrimSpace(lines[end]) != "end" {
			end++
		}
		for n := range p.number(words[1]) {
			for _, line := range lines[i+1 : end] {
				p.line(strings.ReplaceAll(line, "$i", strconv.FormatInt(n, 10)))
			}
			if len(words) == 4 {
				time.Sleep(p.duration(words[3]))
			}
		}
		i = end
	}
}

// start starts Takes at an interval.
func (p *play) start(every time.Duration, line string) {
	p.ready()
	stop := make(chan struct{})
	p.traffic = stop
	charges, _, _, _ := p.parse(line)
	p.running.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
			p.running.Go(func() {
				_ = p.subject.Takes[0](time.Minute, slices.Clone(charges), make([]sluice.Receipt, len(charges)))
			})
		}
	})
}

// stop ends the Takes of start.
func (p *play) stop() {
	if p.traffic != nil {
		close(p.traffic)
		p.traffic = nil
	}
	p.running.Wait()
}

func (p *play) fatal(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%q: %s", p.now, fmt.Sprintf(format, args...))
}

func (p *play) line(line string) {
	p.t.Helper()
	line, _, _ = strings.Cut(line, "#")
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	p.now = strings.TrimSpace(line)
	switch words[0] {
	case "limit":
		p.plans[words[1]] = p.plan(words[2:])
	case "fault":
		p.sv.Set(p.fault(words[1:]))
	case "cut":
		p.sv.Set(p.fault(words[1:]))
		p.until("the store is unavailable", func() bool {
			_ = p.do(Call{[]sluice.Charge{{Key: "cut", Plan: p.cutPlan(), Cost: 1, OnError: sluice.Deny}}, make([]sluice.Receipt, 1), nil}, 0, time.Minute)
			time.Sleep(9 * time.Millisecond)
			return p.status()["unavailable"] > 0
		})
	case "mend":
		p.sv.Set(nil)
		p.until("the store is used again", func() bool { s := p.status(); return s["unavailable"] == 0 && s["owing"] == 0 })
	case "wait":
		time.Sleep(p.duration(words[1]))
		synctest.Wait()
	case "at":
		time.Sleep(time.Until(p.began.Add(p.duration(words[1]))))
		synctest.Wait()
	case "close":
		p.subject.Close()
	case "restart":
		p.clock = NewClocked(p.memory())
		p.sv.Restart(p.clock)
	case "clock":
		p.clock.SetBack(p.duration(words[1]))
	case "others":
		p.sv.Others.Store(p.number(words[1]))
	case "silent":
		p.sv.Silent.Store(words[1] == "true")
	case "used":
		p.within("used", p.sv.Used(p.t, words[1], p.limit(words[2])), words[3])
	case "calls":
		n := p.sv.Calls.Load()
		p.within("calls", n-p.calls, words[1])
		p.calls = n
	case "probes":
		n := p.sv.Probes.Load()
		p.within("probes", n-p.probes, words[1])
		p.probes = n
	case "admitted":
		p.within("admitted", p.admitted[words[1]], words[2])
		p.admitted[words[1]] = 0
	case "traffic":
		if p.stop(); words[1] != "none" {
			p.start(p.duration(words[1]), strings.Join(words[2:], " "))
		}
	case "until":
		name, want, _ := strings.Cut(words[1], "=")
		began := time.Now()
		p.until(words[1], func() bool { return p.statusOf(name) == p.number(want) })
		if len(words) == 4 {
			within := words[3]
			if !strings.Contains(within, "..") {
				within = "0s.." + within
			}
			p.times("the time until then", time.Since(began), within)
		}
	case "status":
		for _, word := range words[1:] {
			name, want, _ := strings.Cut(word, "=")
			p.within(name, p.statusOf(name), want)
		}
	default:
		if len(words) == 3 && words[1] == "=" {
			p.settings[words[0]] = words[2]
			return
		}
		p.take(line)
	}
}

func (p *play) until(what string, holds func() bool) {
	for range 100_000 {
		if holds() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	p.fatal("gave up waiting until %s", what)
}

func (p *play) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		p.fatal("%v", err)
	}
	return d
}

func (p *play) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.fatal("%v", err)
	}
	return n
}

// within fails unless a number is the wanted one, or in the wanted range.
func (p *play) within(what string, got int64, want string) {
	least, most, ok := strings.Cut(want, "..")
	if !ok {
		most = least
	}
	if got < p.number(least) || got > p.number(most) {
		p.t.Errorf("%q: %s %d, want %s", p.now, what, got, want)
	}
}

func (p *play) limit(name string) *sluice.Plan {
	if p.plans[name] == nil {
		p.fatal("unknown limit %q", name)
	}
	return p.plans[name]
}

func (p *play) cutPlan() *sluice.Plan {
	if p.plans["cut"] == nil {
		p.plans["cut"] = p.plan([]string{"1/second"})
	}
	return p.plans["cut"]
}

func (p *play) plan(words []string) *sluice.Plan {
	plan, err := parse(words)
	if err != nil {
		p.fatal("%v", err)
	}
	return plan
}

// Plan returns the plan of a limit in the form that the histories of [Play] use, such as "100/day fixed_window".
func Plan(t testing.TB, limit string) *sluice.Plan {
	t.Helper()
	plan, err := parse(strings.Fields(limit))
	if err != nil {
		t.Fatalf("%s: %v", limit, err)
	}
	return plan
}

func parse(words []string) (*sluice.Plan, error) {
	switch words[0] {
	case "in_flight":
		n, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return nil, err
		}
		return sluice.NewInFlight(n)
	case "penalty":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return nil, err
		}
		return sluice.Penalty{First: d, Factor: 2}.Plan()
	}
	return parseRate(words)
}

// parseRate returns the plan of a limit. Its last words may be an algorithm and the debt of a key.
func parseRate(words []string) (*sluice.Plan, error) {
	owe := int64(0)
	if n := len(words); n > 2 && words[n-2] == "owe" {
		var err error
		if owe, err = strconv.ParseInt(words[n-1], 10, 64); err != nil {
			return nil, err
		}
		words = words[:n-2]
	}
	algorithm := sluice.TokenBucket
	for _, a := range sluice.Algorithms() {
		if n := len(words); words[n-1] == a.String() {
			algorithm, words = a, words[:n-1]
			break
		}
	}
	l, err := sluice.ParseLimit(strings.Join(words, " "))
	if err != nil {
		return nil, err
	}
	l.Algorithm = algorithm
	plan, err := sluice.NewPlan(l)
	if err == nil && owe > 0 {
		plan, err = plan.WithMost(plan.Capacity + owe)
	}
	return plan, err
}

func (p *play) fault(words []string) Fault {
	var keys []string
	if i := slices.Index(words, "for"); i > 0 {
		words, keys = words[:i], words[i+1:]
	}
	if words[0] == "odd" {
		var rest Fault
		if len(words) > 1 {
			rest = p.fault(words[1:])
		}
		return Spoil(rest, keys...)
	}
	var part int64
	if n := len(words); n > 2 && words[n-2] == "one_in" {
		part, words = p.number(words[n-1]), words[:n-2]
	}
	times := int64(math.MaxInt64)
	if n := len(words); n > 2 && words[n-2] == "times" {
		times, words = p.number(words[n-1]), words[:n-2]
	}
	f := p.faultOf(words)
	if f == nil || keys == nil && times == math.MaxInt64 && part == 0 {
		return f
	}
	var struck atomic.Int64
	return func(ctx context.Context, c Call) error {
		if keys != nil && !slices.Contains(keys, c.Charges[0].Key) || struck.Add(1) > times ||
			part > 0 && p.below(part) > 0 {
			return c.Take()
		}
		return f(ctx, c)
	}
}

// below returns a random number in [0, n).
func (p *play) below(n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.Int64N(n)
}

func (p *play) faultOf(words []string) Fault {
	switch words[0] {
	case "refused":
		return Refused
	case "unsent":
		return Unsent
	case "frozen":
		return Frozen
	case "mute":
		return Mute
	case "writes":
		return func(ctx context.Context, c Call) error {
			if c.Charges[0].Cost != 0 {
				return Refused(ctx, c)
			}
			return c.Take()
		}
	case "late":
		d := p.duration(words[1])
		return Late(func() time.Duration { return d - d/5 + time.Duration(p.below(int64(d*2/5))) })
	case "telling":
		return Telling(p.duration(words[1]), p.duration(words[2]))
	case "none":
		return nil
	}
	p.fatal("unknown fault")
	return nil
}

func (p *play) status() map[string]int {
	p.ready()
	if p.subject.Status == nil {
		p.fatal("the subject has no status")
	}
	return p.subject.Status()
}

func (p *play) statusOf(name string) int64 {
	p.t.Helper()
	n, known := p.status()[name]
	if !known {
		p.fatal("unknown status %q", name)
	}
	return int64(n)
}

func (p *play) ready() {
	if p.subject.Takes == nil {
		p.subject = p.open(p.t, p.sv, p.settings)
	}
}

func (p *play) do(c Call, process int, wait time.Duration) error {
	p.ready()
	return p.subject.Takes[process](wait, c.Charges, c.Receipts)
}

// parse reads the charges of a line, and the process that makes them. The result shared reports whether the shared
// store itself is charged instead.
func (p *play) parse(line string) (charges []sluice.Charge, process int, wait time.Duration, shared bool) {
	wait = time.Minute
	words := strings.Fields(line)
	if words[0] == "shared" {
		shared, words = true, words[1:]
	}
	if n, ok := strings.CutPrefix(words[0], "@"); ok {
		process, words = int(p.number(n)), words[1:]
	}
	for _, text := range strings.Split(strings.Join(words, " "), " + ") {
		if strings.Contains(text, "nowait") {
			wait = 0
		}
		charges = append(charges, p.charge(strings.Fields(text)))
	}
	return charges, process, wait, shared
}

// take plays a line of charges.
func (p *play) take(line string) {
	p.t.Helper()
	request, want, _ := strings.Cut(line, "->")
	words := strings.Fields(request)
	times, every := int64(1), time.Duration(0)
	if n, ok := strings.CutSuffix(words[0], "x"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
		times, words = p.number(n), words[1:]
	}
	if words[0] == "every" {
		every, words = p.duration(words[1]), words[2:]
	}
	charges, process, wait, shared := p.parse(strings.Join(words, " "))
	admitted := int64(0)
	for range times {
		c := Call{slices.Clone(charges), make([]sluice.Receipt, len(charges)), p.clock}
		var err error
		if shared {
			err = c.Take()
		} else {
			err = p.do(c, process, wait)
		}
		fits := err == nil && sluice.Admitted(c.Charges, c.Receipts)
		if fits {
			admitted++
			p.admitted[charges[0].Key]++
		}
		if !counts(want) {
			p.receipts(c, err, fits, want)
		}
		time.Sleep(every)
	}
	if counts(want) {
		p.within("admitted", admitted, strings.Fields(want)[0])
	}
}

// counts reports whether the expectation is a number of admitted Takes.
func counts(want string) bool {
	words := strings.Fields(want)
	return len(words) == 2 && words[1] == "admitted"
}

func (p *play) charge(words []string) sluice.Charge {
	c := sluice.Charge{Key: words[0], Plan: p.limit(words[1]), Cost: 1}
	for _, word := range words[2:] {
		permit, isPermit := strings.CutPrefix(word, "place=")
		switch {
		case word == "allow":
			c.OnError = sluice.Allow
		case word == "deny":
			c.OnError = sluice.Deny
		case word == "local":
			c.OnError = sluice.Local
		case word == "leased":
			c.Consistency = sluice.Leased
		case word == "synced":
			c.Consistency = sluice.Synced
		case word == "shadow":
			c.Shadow = true
		case word == "owe":
			c.Owe = true
		case word == "nowait":
		case word == "all":
			c.Cost = sluice.All
		case isPermit:
			c.Permit = uint64(p.number(permit))
		default:
			c.Cost = p.number(word)
		}
	}
	return c
}

var origins = map[string]sluice.Origin{
	"store": sluice.ByStore, "share": sluice.ByLocalShare, "on_error": sluice.ByOnError, "lease": sluice.ByLease, "sync": sluice.BySync,
}

// receipts fails unless the receipts of a Take are as expected.
func (p *play) receipts(c Call, err error, admitted bool, want string) {
	p.t.Helper()
	want, whole, _ := strings.Cut(want, ",")
	if strings.TrimSpace(want) == "unsent" {
		if e, ok := errors.AsType[interface {
			error
			NotCharged() bool
		}](err); !ok || !e.NotCharged() || e.Error() == "" {
			p.t.Errorf("%q: error %v, want an error that reports that nothing was charged", p.now, err)
		}
		return
	}
	if strings.TrimSpace(want) == "odd" {
		if e, ok := errors.AsType[interface {
			error
			Unreadable() []int
		}](err); !ok || len(e.Unreadable()) == 0 || e.Error() == "" {
			p.t.Errorf("%q: error %v, want an error that reports unreadable keys", p.now, err)
		}
		return
	}
	if err != nil {
		p.t.Errorf("%q: %v", p.now, err)
		return
	}
	if whole = strings.TrimSpace(whole); whole != "" && (whole == "admitted") != admitted {
		p.t.Errorf("%q: the receipts are %+v, want the Take %s", p.now, c.Receipts, whole)
	}
	for i, text := range strings.Split(want, " + ") {
		p.receipt(c.Charges[i], c.Receipts[i], strings.Fields(text))
	}
}

func (p *play) receipt(c sluice.Charge, r sluice.Receipt, words []string) {
	p.t.Helper()
	d := c.Plan.Decide(max(0, c.Cost), r)
	for i := 0; i < len(words); i++ {
		word := words[i]
		if word == "yes" || word == "no" {
			if r.Fits != (word == "yes") {
				p.t.Errorf("%q: %s: %+v", p.now, c.Key, r)
			}
			continue
		}
		if o, ok := origins[word]; ok {
			if r.Origin != o {
				p.t.Errorf("%q: %s was decided by %v", p.now, c.Key, r.Origin)
			}
			continue
		}
		if i++; i == len(words) {
			p.fatal("%q has no value", word)
		}
		switch word {
		case "left":
			p.within(c.Key+" left", d.Remaining, words[i])
		case "used":
			p.within(c.Key+" used", r.Used, words[i])
		case "wait":
			p.times(c.Key+" wait", d.RetryAfter, words[i])
		case "delay":
			p.times(c.Key+" delay", d.Delay, words[i])
		default:
			p.fatal("unknown property %q of a receipt", word)
		}
	}
}

// times is like within, for durations.
func (p *play) times(what string, got time.Duration, want string) {
	least, most, ok := strings.Cut(want, "..")
	if !ok {
		most = least
	}
	if got < p.duration(least) || got > p.duration(most) {
		p.t.Errorf("%q: %s %v, want %s", p.now, what, got, want)
	}
}
