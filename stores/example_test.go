package stores_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/stores"
)

// The URL comes from the settings of the program: "memory" on a laptop, redis://… in production.
func ExampleOpen() {
	ctx := context.Background()
	store, err := stores.Open(ctx, "memory", stores.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	limit, err := sluice.ParseLimit("1/minute")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sluice.NewLimiter(store, "api", limit)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		decision, err := limiter.Take(ctx, "alice", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision.Allowed)
	}
	// Output:
	// true
	// false
}
