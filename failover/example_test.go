package failover_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// unavailable is a store that fails each Take.
type unavailable struct{}

func (unavailable) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("no route to host")
}

// While the shared store is unavailable, OnError of each charge decides.
func Example() {
	store := failover.New(failover.Bulkhead(unavailable{}, 100), failover.Config{Instances: 2, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	defer store.Close()
	limit, err := sluice.ParseLimit("4/day")
	if err != nil {
		log.Fatal(err)
	}
	for _, onError := range []sluice.OnError{sluice.Allow, sluice.Deny, sluice.Local} {
		limiter, err := sluice.NewLimiter(store, "api-"+onError.String(), limit)
		if err != nil {
			log.Fatal(err)
		}
		limiter.OnError = onError
		passed := 0
		for range 10 {
			decision, err := limiter.Take(context.Background(), "alice", 1)
			if err != nil {
				log.Fatal(err)
			}
			if decision.Allowed {
				passed++
			}
		}
		fmt.Println(onError, passed)
	}
	// Output:
	// allow 10
	// deny 0
	// local 2
}
