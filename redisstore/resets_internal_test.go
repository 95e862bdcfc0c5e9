package redisstore

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
)

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
	return rueidis.PubSubMessage{Message: resetCodec{newAEAD([]byte(secret), "resets")}.seal(states)}
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
				d.noteBucket(p, "k", true, cacheEntry{Snapshot: sluice.Snapshot{Now: 1000}, sent: at, back: at})
			}
			sent := d.at(time.Now())
			r.hear(message(secret, p, "other", "k"))
			back := d.at(time.Now())
			d.noteBucket(p, "k", true, cacheEntry{Snapshot: sluice.Snapshot{Now: 2000}, sent: sent, back: back})
			if _, refuses := d.refuses(p, "k", back+1); refuses {
				t.Errorf("secret %q, known %v: refuses by an answer from before the reset", secret, known)
			}
			if known { // what this process gives back itself is unknown for a second
				d.forgetState(p.Fingerprint, "k", back)
				r.hear(message(secret, p, "k"))
				sent = d.at(time.Now()) + 1
				d.noteBucket(p, "k", true, cacheEntry{Snapshot: sluice.Snapshot{Now: 2500}, sent: sent, back: sent})
				if _, refuses := d.refuses(p, "k", sent+1); refuses {
					t.Errorf("secret %q: refuses though a give-back may be under way", secret)
				}
				back = sent + cacheFor
			}
			back++
			d.noteBucket(p, "k", true, cacheEntry{Snapshot: sluice.Snapshot{Now: 3000}, sent: back, back: back})
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
		d.noteBucket(p, "k", true, cacheEntry{Snapshot: sluice.Snapshot{Now: 1000}, sent: at, back: at})
		r.hear(message(test.theirs, p, "k"))
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
		d.noteBucket(p, strconv.Itoa(i), true, cacheEntry{Snapshot: sluice.Snapshot{Now: 1000}, sent: at, back: at})
	}
	r.since = 1 << 62 // the flood is within one second, however long it takes
	for n := range 100 {
		var forged []string
		for i := range 5000 {
			forged = append(forged, strconv.Itoa(n*5000+i))
		}
		r.hear(message("", p, forged...))
	}
	kept := 0
	for i := range keys {
		if _, refuses := d.refuses(p, strconv.Itoa(i), at+1); refuses && i >= maxHeard {
			kept++
		}
	}
	if r.heard != maxHeard {
		t.Errorf("%d states of a flood were heard, want %d", r.heard, maxHeard)
	}
	if kept < (keys-maxHeard)*8/10 {
		t.Errorf("%d of %d other states are remembered", kept, keys-maxHeard)
	}
}

// What is told fits in a message that is read, and what does not is left out.
func TestResetRoom(t *testing.T) {
	p, r := bucket(t, 3), deaf("0123456789abcdef")
	r.publishing = true // so that nothing is taken away
	for _, length := range []int{maxStates, maxStates - maxStateHead, 1, 100} {
		charges := []sluice.Charge{{Key: strings.Repeat("k", length), Plan: p, Cost: sluice.All}, {Key: "taken", Plan: p, Cost: 1}}
		r.tell(charges, make([]sluice.Receipt, len(charges)))
	}
	fingerprint, key, rest, ok := cutState(r.codec.open(r.codec.seal(r.pending)))
	if !ok || fingerprint != p.Fingerprint || key != strings.Repeat("k", maxStates-maxStateHead) {
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
		receipt := sluice.Receipt{Used: p.Size - test.left*p.Unit, Fits: true}
		r.tell([]sluice.Charge{{Key: test.key, Plan: p, Cost: test.back}}, []sluice.Receipt{receipt})
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
