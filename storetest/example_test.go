package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

// A test like this one checks your store against the contract. Use its constructor in place of memory.New.
func ExampleRun() {
	testStore := func(t *testing.T) {
		storetest.Run(t, func(*testing.T) sluice.Store { return memory.New() })
	}
	_ = testStore
}

// The model decides by the definitions, for comparison with a store's answers at the same time.
func ExampleModel() {
	plan, err := sluice.NewPlan(sluice.Limit{Count: 2, Period: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	model, store := new(storetest.Model), memory.New()
	charges := []sluice.Charge{{Key: "alice", Plan: plan, Cost: 1}}
	for second := range int64(4) {
		var says, does [1]sluice.Receipt
		now := (1_800_000_000 + 15*second) * 1e6
		if err := model.TakeAt(context.Background(), now, charges, says[:]); err != nil {
			fmt.Println(err)
		}
		if err := store.TakeAt(context.Background(), now, charges, does[:]); err != nil {
			fmt.Println(err)
		}
		fmt.Println(says[0].Fits, says[0].Fits == does[0].Fits)
	}
	// Output:
	// true true
	// true true
	// true true
	// false true
}
