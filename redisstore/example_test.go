package redisstore_test

import (
	"context"
	"log"

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/redisstore"
)

// Open connects to the server.
func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	limit, err := sluice.ParseLimit("100/minute burst 20")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sluice.NewLimiter(store, "api", limit)
	if err != nil {
		log.Fatal(err)
	}
	decision, err := limiter.Take(ctx, "alice", 1)
	if err != nil {
		log.Fatal(err)
	}
	log.Print(decision.Allowed, decision.RetryAfter)
}

// New uses an existing client.
func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := redisstore.New(context.Background(), client, redisstore.Keys{Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
}
