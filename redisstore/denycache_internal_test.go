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

// noteBucket records in d that the bucket of a key was full or empty, at the times in k.
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

// An answer that arrives late does not replace a newer one.
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
			t.Errorf("%s: denied is %v", test.name, refuses)
		}
	}
}

// The cache denies only if a charge does not fit at the latest time that the server's clock may have now. The receipt
// has the earliest such time.
func TestRefusedBounds(t *testing.T) {
	p, f := bucket(t, 1), newDenyCache()
	const hour = 3_600_000_000
	// The bucket drains in 101 µs.
	full := sluice.Receipt{Receipt: kernel.Receipt{Now: 10 * hour, Used: p.Size * 101 / hour}}
	charges := []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}
	f.note(cacheEntry{sent: 1000, back: 1020}, false, charges, []sluice.Receipt{full}, []int64{0})
	r, refuses := f.refuses(p, "k", 1100)
	if want := p.Decide(1, r); !refuses || r.Now != 10*hour+80 || want.RetryAfter != 21*time.Microsecond {
		t.Errorf("%v, %+v, %+v", refuses, r, want)
	}
	if _, refuses := f.refuses(p, "k", 1101); refuses {
		t.Error("denied although the charge may fit")
	}
	if _, refuses := f.refuses(bucket(t, 2), "k", 1050); refuses {
		t.Error("denied although the burst is larger")
	}
	f.noteBucket(bucket(t, 2), "large", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 10 * hour}, sent: 1000, back: 1020})
	if _, refuses := f.refuses(p, "large", 1050); refuses {
		t.Error("denied because of a level above the burst, which the server would cut")
	}
}

// However many keys are denied, most of the newest are remembered.
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

// An answer from before a refund that arrives after it is not remembered, even if other keys have replaced the entry of
// the refund.
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
				t.Errorf("%s, then %d others: denied by an answer from before the refund", name, others)
			}
			f.note(cacheEntry{sent: 2_000_000, back: 2_000_100}, false, charge("k", 1), full(now+2_000_000), []int64{0})
			if !f.answerAt(2_000_101, charge("k", 1), make([]sluice.Receipt, 1)) {
				t.Errorf("%s, then %d others: an answer from after the refund is not remembered", name, others)
			}
		}
	}
}

// If a state was recorded after the caller read the clock, the cache judges it at the time in the receipt, not before.
// If a unit fits at that time, the server must decide.
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
			t.Fatalf("at %d: denied, with the receipt %+v", at, r[0])
		}
	}
}

// deaf returns resets without a server.
func deaf(secret string) *resets {
	return newResets(&Store{denyCache: newDenyCache()}, Config{HashKey: []byte(secret)})
}

// message returns the message of a process that has reset the states of keys.
func message(secret string, p *sluice.Plan, keys ...string) rueidis.PubSubMessage {
	var states []byte
	for _, k := range keys {
		states = appendState(states, p.Fingerprint, k)
	}
	return rueidis.PubSubMessage{Message: newCodec([]byte(secret), "resets").seal(states, "")}
}

// A denial that was in flight when a message about a reset arrived is not remembered. A denial requested after the
// message is remembered, unless a refund by this process may be in flight.
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
				t.Errorf("secret %q, known %v: denied by an answer from before the reset", secret, known)
			}
			if known { // after a refund by this process, the state is unknown for a second
				d.forgetState(p.Fingerprint, "k", back)
				r.receiveMessage(message(secret, p, "k"))
				sent = d.at(time.Now()) + 1
				d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 2500}, sent: sent, back: sent})
				if _, refuses := d.refuses(p, "k", sent+1); refuses {
					t.Errorf("secret %q: denied although a refund may be in flight", secret)
				}
				back = sent + cacheFor
			}
			back++
			d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 3000}, sent: back, back: back})
			if _, refuses := d.refuses(p, "k", back+1); !refuses {
				t.Errorf("secret %q, known %v: a denial from after the reset is not remembered", secret, known)
			}
		}
	}
}

// A message has no effect on processes with another secret, or if only one of the two has a secret.
func TestResetOfOthers(t *testing.T) {
	p := bucket(t, 3)
	for _, test := range []struct{ mine, theirs string }{{"0123456789abcdef", "another secret 1"}, {"0123456789abcdef", ""}, {"", "0123456789abcdef"}} {
		r := deaf(test.mine)
		d := r.store.denyCache
		at := d.at(time.Now())
		d.noteBucket(p, "k", true, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: at, back: at})
		r.receiveMessage(message(test.theirs, p, "k"))
		if _, refuses := d.refuses(p, "k", at+1); !refuses {
			t.Errorf("with secret %q, a message with secret %q removed a state", test.mine, test.theirs)
		}
	}
}

// A flood of messages removes at most maxRemoved states a second, and most others stay.
func TestResetFlood(t *testing.T) {
	p, r := bucket(t, 3), deaf("")
	d := r.store.denyCache
	at := d.at(time.Now())
	const keys = 2 * cacheSets
	for i := range keys {
		d.noteBucket(p, strconv.Itoa(i), true, cacheEntry{Snapshot: kernel.Snapshot{Now: 1000}, sent: at, back: at})
	}
	r.since = 1 << 62 // the flood counts as one second, however long it takes
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
		t.Errorf("a flood removed %d states, want %d", r.removed, maxRemoved)
	}
	if kept < (keys-maxRemoved)*8/10 {
		t.Errorf("%d of %d other states are remembered", kept, keys-maxRemoved)
	}
}

// Announced states fit in a message that receivers accept. A state that does not fit is left out.
func TestResetRoom(t *testing.T) {
	p, r := bucket(t, 3), deaf("0123456789abcdef")
	r.publishing = true // keeps the states pending
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

// A refund is announced once, and only if its state was nearly full, because other states are probably not denied.
func TestGiveBackTold(t *testing.T) {
	p, r := bucket(t, 100), deaf("")
	r.pause = time.Hour // keeps the states gathered
	for _, test := range []struct {
		key        string
		back, left int64
		gathered   int
	}{{"busy", -1, 1, 1}, {"busy", -1, 2, 1}, {"half", -1, 50, 1}, {"dear", -20, 50, 2}, {"huge", -1 << 62, 100, 3}} {
		receipt := sluice.Receipt{Receipt: kernel.Receipt{Used: p.Size - test.left*p.Unit, Fits: true}}
		r.announce([]sluice.Charge{{Key: test.key, Plan: p, Cost: test.back}}, []sluice.Receipt{receipt})
		if len(r.gathered) != test.gathered {
			t.Errorf("%+v: %d states are announced", test, len(r.gathered))
		}
	}
}

// cutState reads what appendState has written, and reads no byte twice or beyond the end.
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
