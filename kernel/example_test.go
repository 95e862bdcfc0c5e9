package kernel_test

import (
	"fmt"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// A store keeps the state of each key, and calls Step for each charge.
func ExamplePlan_Step() {
	plan, err := sluice.NewPlan(sluice.Limit{Count: 60, Period: 60e9, Burst: 2})
	if err != nil {
		panic(err)
	}
	var state kernel.State
	var receipt kernel.Receipt
	for now := int64(1_700_000_000_000_000); !receipt.Fits || plan.Remaining(&receipt) > 0; now += 250_000 {
		state = plan.Step(state, now, 1, &receipt)
		fmt.Println(receipt.Fits, plan.Remaining(&receipt))
	}
	plan.Step(state, 1_700_000_000_500_000, 1, &receipt)
	_, _, wait := plan.Answer(&receipt, 1)
	fmt.Println(receipt.Fits, wait)

	// Output:
	// true 1
	// true 0
	// false 500ms
}
