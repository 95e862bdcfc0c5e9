package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// work is one thing that every contender does. A contender runs in a process of its own,
// once a round, so that nobody pays for another's garbage.
type work struct {
	name       string
	about      string
	contenders []contender
	// measure runs a contender and returns what it cost. It fails if the contender
	// has not done what the work says.
	measure func(c contender) (sample, error)
	columns []string // of the sample's values, the first decides
}

type role string

const (
	ours  role = "ours"
	rival role = "rival"
	floor role = "floor"
)

type contender struct {
	name  string
	role  role
	start any // what the work's measure knows
}

// sample is what one run of a contender cost, by column.
type sample map[string]float64

// result is what all rounds of a contender gave.
type result struct {
	contender
	samples []sample
	err     error
}

// median returns the middle of a column, and half the distance of its quartiles.
func (r result) median(column string) (mid, spread float64) {
	var v []float64
	for _, s := range r.samples {
		if x, ok := s[column]; ok {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return 0, 0
	}
	slices.Sort(v)
	return v[len(v)/2], (v[len(v)*3/4] - v[len(v)/4]) / 2
}

// run measures the works that match, round by round, in child processes.
func run(works []work, match *regexp.Regexp, rounds int) map[string][]result {
	all := map[string][]result{}
	for round := range rounds {
		for _, w := range works {
			if !match.MatchString(w.name) {
				continue
			}
			if all[w.name] == nil {
				for _, c := range w.contenders {
					all[w.name] = append(all[w.name], result{contender: c})
				}
			}
			for _, i := range rand.Perm(len(w.contenders)) {
				r := &all[w.name][i]
				s, err := child(w.name, r.name)
				if err != nil {
					r.err = err
					fmt.Fprintf(os.Stderr, "%s, %s: %v\n", w.name, r.name, err)
					continue
				}
				r.samples = append(r.samples, s)
				fmt.Fprintf(os.Stderr, "round %d, %s, %s: %v\n", round+1, w.name, r.name, s)
			}
		}
	}
	return all
}

// child measures one contender in a process of its own.
func child(work, contender string) (sample, error) {
	cmd := exec.Command(os.Args[0], "-child", work, contender)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var s sample
	return s, json.Unmarshal(out, &s)
}

// childMain is the other side of child.
func childMain(works []work, name, contender string) error {
	for _, w := range works {
		for _, c := range w.contenders {
			if w.name == name && c.name == contender {
				s, err := w.measure(c)
				if err != nil {
					return err
				}
				return json.NewEncoder(os.Stdout).Encode(s)
			}
		}
	}
	return fmt.Errorf("there is no %s in %s", contender, name)
}

// cpu returns the time that this process has had the processor.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cost is what a number of operations took.
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

// spend calls op from a number of goroutines for about d, after as long a warm-up
// of a tenth. Every goroutine walks the sequence of keys from a place of its own.
func spend(threads int, d time.Duration, keys []string, sequence []uint32, op func(key string) bool) cost {
	loop(threads, d/10, keys, sequence, op)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	startCPU, start := cpu(), time.Now()
	ops, admitted := loop(threads, d, keys, sequence, op)
	c := cost{ops: ops, admitted: admitted, wall: time.Since(start), cpu: cpu() - startCPU}
	runtime.ReadMemStats(&after)
	c.mallocs = after.Mallocs - before.Mallocs
	return c
}

func loop(threads int, d time.Duration, keys []string, sequence []uint32, op func(key string) bool) (ops, admitted int64) {
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
					if op(keys[sequence[at&(len(sequence)-1)]]) {
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

// keysOf returns n keys such as people use, of 20 bytes.
func keysOf(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("customer:%011d", i*7919)
	}
	return keys
}

const sequenceLength = 1 << 20 // a power of two

func uniform(n int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	s := make([]uint32, sequenceLength)
	for i := range s {
		s[i] = uint32(r.IntN(n))
	}
	return s
}

func zipf(n int) []uint32 {
	r := rand.New(rand.NewPCG(3, 4))
	z := rand.NewZipf(r, 1.1, 1, uint64(n-1))
	s := make([]uint32, sequenceLength)
	for i := range s {
		s[i] = uint32(z.Uint64())
	}
	return s
}

// byRole returns the results of a role, the best of the first column first.
func byRole(results []result, of role, column string) []result {
	var some []result
	for _, r := range results {
		if r.role == of && len(r.samples) > 0 {
			some = append(some, r)
		}
	}
	slices.SortFunc(some, func(a, b result) int {
		x, _ := a.median(column)
		y, _ := b.median(column)
		if column == "per second" {
			x, y = y, x
		}
		return cmp.Compare(x, y)
	})
	return some
}
