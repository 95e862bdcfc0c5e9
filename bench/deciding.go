package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

const (
	budget  = 330 * time.Millisecond // the time of one measurement
	million = 1_000_000
	plenty  = 500_000_000 // a second; one process never reaches this limit
)

// deciding measures decisions about n keys, by one thread and by two. It fails if the fraction of denials is not
// between the bounds least and most.
func deciding(n int, sequenceOf func(int) []uint32, count int, period time.Duration, least, most float64) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		all, sequence := keysOf(n), sequenceOf(n)
		decide := c.start.(inMemory)(count, period, n)
		for i := range n {
			decide(all.at(i)) // so that every key is known
		}
		runtime.GC()
		s := spend(1, budget, all, sequence, decide).sample()
		two := spend(2, budget, all, sequence, decide).sample()
		s["2 threads ns"], s["2 threads CPU ns"] = two["ns"], two["CPU ns"]
		for _, refused := range []float64{s["refused"], two["refused"]} {
			if c.role != floor && (refused < least || refused > most) {
				return nil, fmt.Errorf("the fraction of denials is %.4f, want %.4f to %.4f", refused, least, most)
			}
		}
		return s, nil
	}
}

// copying measures with keys that have just been copied.
func copying(measure func(contender) (sample, error)) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		start := c.start.(inMemory)
		c.start = inMemory(func(count int, period time.Duration, keys int) func(string) bool {
			decide := start(count, period, keys)
			return func(key string) bool { return decide(strings.Clone(key)) }
		})
		return measure(c)
	}
}

// everyKey is uniform, and asserts that its sequence has nearly all of the n keys.
func everyKey(n int) []uint32 {
	s := uniform(n)
	if d := different(s, n); d < n*95/100 {
		panic(fmt.Sprintf("the sequence has %d of %d keys", d, n))
	}
	return s
}

func memoryWorks() []work {
	cols := []string{"ns", "CPU ns", "2 threads ns", "2 threads CPU ns", "allocs", "refused"}
	withUber := append(slices.Clone(deciders), uberDecider)
	return []work{
		{"memory: one hot key, allowed", "The limit is never reached", withUber, deciding(1, one, plenty, time.Second, 0, 0), cols},
		{"memory: one hot key, copied", "As above, but the key is copied just before the call, as in a server", withUber, copying(deciding(1, one, plenty, time.Second, 0, 0)), cols},
		{"memory: one hot key, refused", "A limit of 1 an hour", deciders, deciding(1, one, 1, time.Hour, 0.999, 1), cols},
		{"memory: 1 M keys, uniform", "A limit of 100 a minute; all keys are known", deciders, deciding(million, everyKey, 100, time.Minute, 0, 0.01), cols},
		{byZipf, "A limit of 100 a minute, so that the most frequent keys are denied; all keys are known", deciders, deciding(million, zipf, 100, time.Minute, 0.05, 0.95), cols},
		{newKeys, "1 M new keys once each, by one caller, in a store that is empty at first; the time of the garbage collector counts", limiters(), fresh, []string{"ns", "CPU ns"}},
	}
}

// limiters returns the deciders that keep counts.
func limiters() []contender {
	return slices.DeleteFunc(slices.Clone(deciders), func(c contender) bool { return c.role == floor })
}

func footprintWorks() []work {
	flooded := []contender{{"sluice/memory", ours, inMemory(nil)}}
	return []work{
		{"memory: what a key takes", "1 M new keys once each: bytes and allocations of a key, the time of a full garbage collection with all keys, and how long it stops the world", limiters(), footprint, []string{"bytes", "allocs", "GC ms", "GC pause µs"}},
		{"memory: a flood", "5,000 keys use up 10 a day in a store of the default size, then 6 M new keys come once each: the fraction of the limited keys that are admitted again, and the allocations of a new key", flooded, flood, []string{"freed", "evicted", "allocs"}},
	}
}

// keysLast is a period so long that no window ends during a measurement.
const keysLast = 1000 * time.Hour

// bring makes one decision about each of a million new keys.
func bring(decide func(string) bool, buf []byte) error {
	for i := range million {
		// The key is a new string, which only the limiter may keep.
		if !decide(string(number11(buf, i))) {
			return errors.New("the first request of a key was denied")
		}
	}
	return nil
}

// fresh measures the first requests of new keys.
func fresh(c contender) (sample, error) {
	buf := []byte(keysOf(1).at(0))
	decide := c.start.(inMemory)(100, keysLast, million)
	runtime.GC()
	startCPU, start := cpu(), time.Now()
	if err := bring(decide, buf); err != nil {
		return nil, err
	}
	took := cost{ops: million, admitted: million, wall: time.Since(start), cpu: cpu() - startCPU}.sample()
	return sample{"ns": took["ns"], "CPU ns": took["CPU ns"]}, remembers(decide, buf)
}

// footprint measures the memory of a million keys that are in use, and a garbage collection with them.
func footprint(c contender) (sample, error) {
	buf := []byte(keysOf(1).at(0))
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	decide := c.start.(inMemory)(100, keysLast, million)
	if err := bring(decide, buf); err != nil {
		return nil, err
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	s := sample{
		"bytes": float64(after.HeapAlloc-before.HeapAlloc) / million,
		// The harness allocates one string for each key.
		"allocs": float64(after.Mallocs-before.Mallocs)/million - 1,
	}
	s["GC ms"], s["GC pause µs"] = collection()
	return s, remembers(decide, buf)
}

// number11 overwrites the digits of a key with the number i.
func number11(key []byte, i int) []byte {
	n := i * 7919
	for at := keyBytes - 1; at >= keyBytes-11; at-- {
		key[at] = byte('0' + n%10)
		n /= 10
	}
	return key
}

// collection returns the median time of full garbage collections, and the median of their pauses.
func collection() (ms, pause float64) {
	var all, stops []float64
	var before, after runtime.MemStats
	for range 5 {
		runtime.ReadMemStats(&before)
		start := time.Now()
		runtime.GC()
		all = append(all, time.Since(start).Seconds()*1000)
		runtime.ReadMemStats(&after)
		stops = append(stops, float64(after.PauseTotalNs-before.PauseTotalNs)/1000)
	}
	ms, _ = middle(all)
	pause, _ = middle(stops)
	return ms, pause
}

// remembers asserts that the limiter has forgotten no key: nearly every key has 99 units left.
func remembers(decide func(string) bool, buf []byte) error {
	forgotten := 0
	for i := range 1000 {
		key := string(number11(buf, i*997))
		n := 0
		for n < 100 && decide(key) {
			n++
		}
		if n == 100 {
			forgotten++
		}
	}
	if forgotten > 1 {
		return fmt.Errorf("%d of 1000 keys were forgotten", forgotten)
	}
	return nil
}

// flood measures how many of the limited keys a flood of new keys frees from their limit, as a fraction.
func flood(contender) (sample, error) {
	const limited, count, newKeys = 5000, 10, 6 * million
	store := memory.New()
	l, err := sluice.NewLimiter(store, "", limitOf(count, 24*time.Hour))
	must(err)
	decide := func(key string) bool {
		d, err := l.Take(context.Background(), key, 1)
		must(err)
		return d.Allowed
	}
	all := keysOf(limited)
	for i := range limited {
		for range count {
			if !decide(all.at(i)) {
				return nil, errors.New("a key was denied below its limit")
			}
		}
	}
	buf := []byte(all.at(0))
	copy(buf, "attacker")
	var before, after runtime.MemStats
	for i := range newKeys {
		if i == newKeys/2 { // by now, the store has its full size
			runtime.ReadMemStats(&before)
		}
		decide(unsafe.String(&number11(buf, i)[0], len(buf))) // the store must copy the key, because buf changes
	}
	runtime.ReadMemStats(&after)
	freed := 0
	for i := range limited {
		if decide(all.at(i)) {
			freed++
		}
	}
	evicted := store.Stats().Evicted
	if evicted < million {
		return nil, fmt.Errorf("only %d keys were evicted: the flood was too small", evicted)
	}
	return sample{
		"freed":   float64(freed) / limited,
		"evicted": float64(evicted),
		"allocs":  float64(after.Mallocs-before.Mallocs) / (newKeys / 2),
	}, nil
}
