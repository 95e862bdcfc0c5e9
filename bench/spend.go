package main

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cost is the cost of a number of operations.
type cost struct {
	ops, admitted int64
	wall, cpu     time.Duration
	mallocs       uint64
}

func (c cost) sample() sample {
	n := float64(c.ops)
	return sample{
		"ns":      float64(c.wall) / n,
		"CPU ns":  float64(c.cpu) / n,
		"allocs":  float64(c.mallocs) / n,
		"refused": 1 - float64(c.admitted)/n,
	}
}

// spend calls op from a number of goroutines for about d, after a warm-up of a tenth of d. Every goroutine goes
// through the sequence of keys from a different position.
func spend(threads int, d time.Duration, all keys, sequence []uint32, op func(key string) bool) cost {
	loop(threads, d/10, all, sequence, op)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	startCPU, start := cpu(), time.Now()
	ops, admitted := loop(threads, d, all, sequence, op)
	c := cost{ops: ops, admitted: admitted, wall: time.Since(start), cpu: cpu() - startCPU}
	runtime.ReadMemStats(&after)
	c.mallocs = after.Mallocs - before.Mallocs
	return c
}

func loop(threads int, d time.Duration, all keys, sequence []uint32, op func(key string) bool) (ops, admitted int64) {
	const block = 256
	var wg sync.WaitGroup
	var mu sync.Mutex
	deadline := time.Now().Add(d)
	for t := range threads {
		wg.Go(func() {
			var n, yes int64
			at := t * (len(sequence) / threads)
			for time.Now().Before(deadline) {
				for range block {
					if op(all.at(int(sequence[at&(len(sequence)-1)]))) {
						yes++
					}
					at++
				}
				n += block
			}
			mu.Lock()
			defer mu.Unlock()
			ops += n
			admitted += yes
		})
	}
	wg.Wait()
	return ops, admitted
}

// keys has realistic keys, one after the other: even ten million of them are one object without pointers.
type keys string

const keyBytes = len("customer:00000000000")

func keysOf(n int) keys {
	var b strings.Builder
	b.Grow(n * keyBytes)
	key := []byte("customer:00000000000")
	for i := range n {
		b.Write(number11(key, i))
	}
	return keys(b.String())
}

func (k keys) len() int        { return len(k) / keyBytes }
func (k keys) at(i int) string { return string(k[i*keyBytes:][:keyBytes]) }

// The length of a sequence is a power of two, and so large that nearly every key is in the sequence.

func one(int) []uint32 { return make([]uint32, 1<<10) }

func uniform(n int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	s := make([]uint32, max(1<<16, 4<<bits.Len(uint(n-1))))
	for i := range s {
		s[i] = uint32(r.IntN(n))
	}
	return s
}

func zipf(n int) []uint32 {
	z := rand.NewZipf(rand.New(rand.NewPCG(3, 4)), 1.1, 1, uint64(n-1))
	s := make([]uint32, 1<<20)
	for i := range s {
		s[i] = uint32(z.Uint64())
	}
	return s
}

// different returns how many different keys a sequence has.
func different(sequence []uint32, n int) int {
	seen, count := make([]bool, n), 0
	for _, i := range sequence {
		if !seen[i] {
			seen[i] = true
			count++
		}
	}
	return count
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
