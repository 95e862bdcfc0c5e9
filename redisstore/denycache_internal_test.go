package redisstore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

func bucket(t *testing.T, burst int64) *sluice.Plan {
	p, err := sluice.NewPlan(sluice.Limit{Count: 1, Period: time.Hour, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// note has f learn that at now, between local times, the bucket of a key was full or empty.
func (d *denyCache) noteBucket(p *sluice.Plan, key string, full bool, k cacheEntry) {
	c := sluice.Charge{Key: key, Plan: p, Cost: 1}
	r := sluice.Receipt{Receipt: kernel.Receipt{Now: k.Now, Used: p.Size}}
	if !full {
		c.Cost, r.Used, r.Fits = sluice.All, 0, true
	}
	charges := []sluice.Charge{c}
	d.note(k, false, charges, []sluice.Receipt{r}, []int64{0})
}

func (d *denyCache) refuses(p *sluice.Plan, key string, at int64) (sluice.Receipt, bool) {
	var r [1]sluice.Receipt
	ok := d.answerAt(at, []sluice.Charge{{Key: key, Plan: p, Cost: 1}}, r[:])
	return r[0], ok
}

// An answer that arrives late does not hide a newer one.
func TestRefusedOrder(t *testing.T) {
	p := bucket(t, 3)
	for _, test := range []struct {
		name       string
		back, late cacheEntry
		refuses    bool
	}{
		{"older", cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, sent: 90, back: 120}, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: 80, back: 150}, false},
		{"newer", cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, sent: 90, back: 120}, cacheEntry{Snapshot: kernel.Snapshot{Now: 3000}, sent: 80, back: 150}, true},
		{"before it in one call", cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, place: 7, sent: 90, back: 120}, cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, place: 6, sent: 90, back: 121}, false},
		{"after it in one call", cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, place: 7, sent: 90, back: 120}, cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, place: 8, sent: 90, back: 121}, true},
		{"by a clock that was set back", cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, sent: 90, back: 120}, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: cacheFor + 80, back: cacheFor + 91}, true},
	} {
		f := newDenyCache()
		f.noteBucket(p, "k", false, test.back)
		f.noteBucket(p, "k", true, test.late)
		if _, refuses := f.refuses(p, "k", test.late.back+1); refuses != test.refuses {
			t.Errorf("%s: refuses %v", test.name, refuses)
		}
	}
}

// It refuses only what does not fit by the latest time that the server can have, and
// promises by the earliest.
func TestRefusedBounds(t *testing.T) {
	p, f := bucket(t, 1), newDenyCache()
	const hour = 3_600_000_000
	// Within 100 µs, which count as 101 as clocks differ, the bucket is empty.
	full := sluice.Receipt{Receipt: kernel.Receipt{Now: 10 * hour, Used: p.Size * 101 / hour}}
	charges := []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}
	f.note(cacheEntry{sent: 1000, back: 1020}, false, charges, []sluice.Receipt{full}, []int64{0})
	r, refuses := f.refuses(p, "k", 1100)
	if want := p.Decide(1, r); !refuses || r.Now != 10*hour+80 || want.RetryAfter != 21*time.Microsecond {
		t.Errorf("%v, %+v, %+v", refuses, r, want)
	}
	if _, refuses := f.refuses(p, "k", 1101); refuses {
		t.Error("refuses though it may fit")
	}
	if _, refuses := f.refuses(bucket(t, 2), "k", 1050); refuses {
		t.Error("refuses though the burst is larger")
	}
	f.noteBucket(bucket(t, 2), "large", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 10 * hour}, sent: 1000, back: 1020})
	if _, refuses := f.refuses(p, "large", 1050); refuses {
		t.Error("refuses by a level above the burst, which the server cuts")
	}
}

// However many are refused, the newest are remembered.
func TestRefusedFull(t *testing.T) {
	p, f := bucket(t, 3), newDenyCache()
	const keys = 10 * cacheSets * cacheWays
	for i := range int64(keys) {
		f.noteBucket(p, strconv.FormatInt(i, 10), true, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: i, back: i})
	}
	newest := 0
	for i := range cacheSets {
		if _, refuses := f.refuses(p, strconv.Itoa(keys-1-i), keys); refuses {
			newest++
		}
	}
	if newest < cacheSets*9/10 {
		t.Errorf("of the newest %d keys %d are remembered", cacheSets, newest)
	}
}

// An answer that was given before a give-back and comes after it is not remembered, whatever
// has needed the place of the give-back in between.
func TestRefusedAfterGivingBack(t *testing.T) {
	const now = 1_700_000_000_000_000
	p, err := sluice.NewPlan(sluice.Limit{Count: 5, Period: time.Hour, Algorithm: sluice.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	charge := func(key string, cost int64) []sluice.Charge {
		return []sluice.Charge{{Key: key, Plan: p, Cost: cost}}
	}
	full := func(at int64) []sluice.Receipt {
		return []sluice.Receipt{{Receipt: kernel.Receipt{Now: at, Tick: at / p.Span, Used: 5}}}
	}
	for name, giveBack := range map[string]func(f *denyCache){
		"given back": func(f *denyCache) {
			f.note(cacheEntry{sent: 5, back: 100}, false, charge("k", -5), []sluice.Receipt{{Receipt: kernel.Receipt{Now: now + 10, Fits: true}}}, []int64{0})
		},
		"unknown": func(f *denyCache) { f.forget(charge("k", -5)) },
	} {
		for others := range 6 {
			f := newDenyCache()
			f.base = f.base.Add(-100 * time.Microsecond)
			giveBack(f)
			_, want := f.set(p.Fingerprint, "k")
			for i, n := 0, 0; n < others; i++ { // other keys of the set
				o := charge(fmt.Sprint("other ", i), 1)
				if _, set := f.set(p.Fingerprint, o[0].Key); set == want {
					f.note(cacheEntry{sent: 200_000, back: 200_100}, false, o, full(now+200_000), []int64{0})
					n++
				}
			}
			f.note(cacheEntry{sent: 1, back: 300_000}, false, charge("k", 1), full(now), []int64{0})
			if f.answerAt(300_001, charge("k", 1), make([]sluice.Receipt, 1)) {
				t.Errorf("%s, then %d others: refused by what was said before", name, others)
			}
			f.note(cacheEntry{sent: 2_000_000, back: 2_000_100}, false, charge("k", 1), full(now+2_000_000), []int64{0})
			if !f.answerAt(2_000_101, charge("k", 1), make([]sluice.Receipt, 1)) {
				t.Errorf("%s, then %d others: what was said after it is not remembered", name, others)
			}
		}
	}
}

// A state that was learnt after the clock was read is judged no earlier than it was told: a
// unit that fits at the time in the receipt is the server's to give.
func TestRefusedLearntMeanwhile(t *testing.T) {
	const now = 1_700_000_000_000_000
	p, err := sluice.NewPlan(sluice.Limit{Count: 20, Period: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	charges := []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}
	f := newDenyCache()
	f.note(cacheEntry{sent: 100, back: 200}, false, charges, []sluice.Receipt{{Receipt: kernel.Receipt{Now: now, Used: p.Size}}}, []int64{0})
	f.note(cacheEntry{sent: 300, back: 400}, false, charges, []sluice.Receipt{{Receipt: kernel.Receipt{Now: now + 300, Used: p.Size - p.Unit, Fits: true}}}, []int64{0})
	for at := int64(200); at <= 400; at++ {
		r := make([]sluice.Receipt, 1)
		if f.answerAt(at, charges, r) {
			t.Fatalf("at %d: refused, with the receipt %+v", at, r[0])
		}
	}
}

// deaf returns resets without a server.
func deaf(secret string) *resets {
	return newResets(&Store{denyCache: newDenyCache()}, Config{HashKey: []byte(secret)})
}

// message is what a process says that has reset the states of keys.
func message(secret string, p *sluice.Plan, keys ...string) rueidis.PubSubMessage {
	var states []byte
	for _, k := range keys {
		states = appendState(states, p.Fingerprint, k)
	}
	return rueidis.PubSubMessage{Message: newCodec([]byte(secret), "resets").seal(states, "")}
}

// A refusal that was under way when the message came is not remembered after it. One that was
// sent after it is, unless a give-back of this process may be under way.
func TestResetMeetsRefusal(t *testing.T) {
	p := bucket(t, 3)
	for _, secret := range []string{"", "0123456789abcdef"} {
		for _, known := range []bool{false, true} {
			r := deaf(secret)
			d := r.store.denyCache
			if known {
				at := d.at(time.Now())
				d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: at, back: at})
			}
			sent := d.at(time.Now())
			r.receiveMessage(message(secret, p, "other", "k"))
			back := d.at(time.Now())
			d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 2000}, sent: sent, back: back})
			if _, refuses := d.refuses(p, "k", back+1); refuses {
				t.Errorf("secret %q, known %v: refuses by an answer from before the reset", secret, known)
			}
			if known { // what this process gives back itself is unknown for a second
				d.forgetState(p.Fingerprint, "k", back)
				r.receiveMessage(message(secret, p, "k"))
				sent = d.at(time.Now()) + 1
				d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 2500}, sent: sent, back: sent})
				if _, refuses := d.refuses(p, "k", sent+1); refuses {
					t.Errorf("secret %q: refuses though a give-back may be under way", secret)
				}
				back = sent + cacheFor
			}
			back++
			d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 3000}, sent: back, back: back})
			if _, refuses := d.refuses(p, "k", back+1); !refuses {
				t.Errorf("secret %q, known %v: does not refuse though it was refused after the reset", secret, known)
			}
		}
	}
}

// Messages are of no use to those with another secret or another prefix, or without one.
func TestResetOfOthers(t *testing.T) {
	p := bucket(t, 3)
	for _, test := range []struct{ mine, theirs string }{{"0123456789abcdef", "another secret 1"}, {"0123456789abcdef", ""}, {"", "0123456789abcdef"}} {
		r := deaf(test.mine)
		d := r.store.denyCache
		at := d.at(time.Now())
		d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: at, back: at})
		r.receiveMessage(message(test.theirs, p, "k"))
		if _, refuses := d.refuses(p, "k", at+1); !refuses {
			t.Errorf("secret %q forgets what %q says", test.mine, test.theirs)
		}
	}
}

// However much is published, most of what is remembered stays.
func TestResetFlood(t *testing.T) {
	p, r := bucket(t, 3), deaf("")
	d := r.store.denyCache
	at := d.at(time.Now())
	const keys = 2 * cacheSets
	for i := range keys {
		d.noteBucket(p, strconv.Itoa(i), true, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: at, back: at})
	}
	r.since = 1 << 62 // the flood is within one second, however long it takes
	for n := range 100 {
		var forged []string
		for i := range 5000 {
			forged = append(forged, strconv.Itoa(n*5000+i))
		}
		r.receiveMessage(message("", p, forged...))
	}
	kept := 0
	for i := range keys {
		if _, refuses := d.refuses(p, strconv.Itoa(i), at+1); refuses && i >= maxRemoved {
			kept++
		}
	}
	if r.removed != maxRemoved {
		t.Errorf("%d states of a flood were heard, want %d", r.removed, maxRemoved)
	}
	if kept < (keys-maxRemoved)*8/10 {
		t.Errorf("%d of %d other states are remembered", kept, keys-maxRemoved)
	}
}

// What is told fits in a message that is read, and what does not is left out.
func TestResetRoom(t *testing.T) {
	p, r := bucket(t, 3), deaf("0123456789abcdef")
	r.publishing = true // so that nothing is taken away
	for _, length := range []int{maxStates, maxStates - maxStateHead, 1, 100} {
		charges := []sluice.Charge{{Key: strings.Repeat("k", length), Plan: p, Cost: sluice.All}, {Key: "taken", Plan: p, Cost: 1}}
		r.announce(charges, make([]sluice.Receipt, len(charges)))
	}
	message := r.codec.seal(r.pending, "")
	states, _ := r.codec.open(message, "")
	fingerprint, key, rest, ok := cutState(states)
	if !ok || fingerprint != p.Fingerprint || key != strings.Repeat("k", maxStates-maxStateHead) || len(message) > maxStates+codecOverhead {
		t.Fatalf("%v, a key of %d bytes, then %d", ok, len(key), len(rest))
	}
	if len(rest) > 0 {
		_, key, rest, ok = cutState(rest)
		if !ok || len(rest) > 0 || key != "k" {
			t.Errorf("%v, %q, %q", ok, key, rest)
		}
	}
}

// What is given back is told of once, and only where it may have kept another from being refused.
func TestGiveBackTold(t *testing.T) {
	p, r := bucket(t, 100), deaf("")
	r.pause = time.Hour // so that nothing is taken away
	for _, test := range []struct {
		key        string
		back, left int64
		told       int
	}{{"busy", -1, 1, 1}, {"busy", -1, 2, 1}, {"half", -1, 50, 1}, {"dear", -20, 50, 2}, {"huge", -1 << 62, 100, 3}} {
		receipt := sluice.Receipt{Receipt: kernel.Receipt{Used: p.Size - test.left*p.Unit, Fits: true}}
		r.announce([]sluice.Charge{{Key: test.key, Plan: p, Cost: test.back}}, []sluice.Receipt{receipt})
		if len(r.gathered) != test.told {
			t.Errorf("%+v: %d states are told of", test, len(r.gathered))
		}
	}
}

// States are read back as they were written, and nothing is read twice or from beyond the end.
func FuzzResetStates(f *testing.F) {
	f.Add([]byte("12345678\x04key1\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("12345678\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte("12345678\x80\x00"))
	f.Fuzz(func(t *testing.T, states []byte) {
		for len(states) > 0 {
			fingerprint, key, rest, ok := cutState(states)
			if !ok {
				return
			}
			if !bytes.HasSuffix(states, rest) || len(rest)+len(key)+9 > len(states) {
				t.Fatalf("%q: a key %q, and then %q", states, key, rest)
			}
			fp, k, none, ok := cutState(appendState(nil, fingerprint, key))
			if !ok || fp != fingerprint || k != key || len(none) > 0 {
				t.Fatalf("%d, %q: %v, %d, %q, %q", fingerprint, key, ok, fp, k, none)
			}
			states = rest
		}
	})
}
