package memory_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// Limiters can share a store: their names keep their counts separate.
func Example() {
	store := memory.NewSize(16 << 20)
	limit, err := sluice.ParseLimit("3/minute")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"search", "upload"} {
		limiter, err := sluice.NewLimiter(store, name, limit)
		if err != nil {
			log.Fatal(err)
		}
		decision, err := limiter.Take(context.Background(), "alice", 2)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, decision.Allowed, decision.Remaining)
	}
	fmt.Println(store.Stats().Keys, "keys")
	// Output:
	// search true 1
	// upload true 1
	// 2 keys
}
