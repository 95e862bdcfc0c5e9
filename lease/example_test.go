package lease_test

import (
	"fmt"
	"log"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/lease"
)

// Units are reserved for a quarter of a second, or a quarter of the time in which a full bucket drains, if that is
// shorter. If few units pass, none are reserved.
func ExampleAhead() {
	for _, text := range []string{"5000/second", "5000/second burst 100", "10/hour"} {
		limit, err := sluice.ParseLimit(text)
		if err != nil {
			log.Fatal(err)
		}
		plan, err := sluice.NewPlan(limit)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(limit, lease.Ahead(plan))
	}
	// Output:
	// 5000/second 250ms
	// 5000/second burst 100 5ms
	// 10/hour 0s
}
