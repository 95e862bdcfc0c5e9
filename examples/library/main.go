// Command library takes six units, one by one, of a limit that allows five.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func main() {
	ctx := context.Background()
	limit, err := sluice.ParseLimit("100/hour burst 5")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
	if err != nil {
		log.Fatal(err)
	}
	for range 6 {
		decision, err := limiter.Take(ctx, "alice", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision.Allowed, decision.Remaining)
	}
}
