package sluice_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// Workers run at most three jobs of a customer at the same time. With a shared store in place of memory.New, the
// bound applies to all processes together.
func ExampleSemaphore() {
	jobs, err := sluice.NewSemaphore(memory.New(), "jobs", 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	var busy, most atomic.Int64
	var workers sync.WaitGroup
	for range 10 {
		workers.Go(func() {
			release, err := jobs.Wait(context.Background(), "customer-42")
			if err != nil {
				fmt.Println(err)
				return
			}
			defer release()
			n := busy.Add(1)
			defer busy.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(20 * time.Millisecond) // the job
		})
	}
	workers.Wait()
	fmt.Println("at most", most.Load(), "jobs at once")
	// Output: at most 3 jobs at once
}

// Acquire does not wait for a permit.
func ExampleSemaphore_Acquire() {
	reports, _ := sluice.NewSemaphore(memory.New(), "reports", 1)
	ctx := context.Background()
	release, d, _ := reports.Acquire(ctx, "alice")
	fmt.Println(d.Allowed)
	_, d, _ = reports.Acquire(ctx, "alice")
	fmt.Println(d.Allowed, d.RetryAfter)
	release()
	_, d, _ = reports.Acquire(ctx, "alice")
	fmt.Println(d.Allowed)
	// Output:
	// true
	// false 1s
	// true
}
