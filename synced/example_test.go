package synced_test

import (
	"fmt"
	"log"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/synced"
)

// Excess returns the number of units above a limit that instances can allow before they know each other's counts.
func ExampleExcess() {
	limit, err := sluice.ParseLimit("100/second burst 10")
	if err != nil {
		log.Fatal(err)
	}
	plan, err := sluice.NewPlan(limit)
	if err != nil {
		log.Fatal(err)
	}
	for _, instances := range []int{1, 2, 4} {
		fmt.Println(instances, synced.Excess(plan, instances))
	}
	// Output:
	// 1 0
	// 2 40
	// 4 120
}
