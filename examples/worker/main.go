// Command worker reads jobs from its standard input, one on each line, and posts them to an API that allows five
// requests a second. Any number of workers keep to this limit together, if they share a store:
//
//	seq 100 | STORE=redis://localhost:6379 go run ./examples/worker http://localhost:8080/jobs
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/client"
	"github.com/sluicehq/sluice/stores"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: worker URL")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	store, err := stores.Open(ctx, cmp.Or(os.Getenv("STORE"), "memory"), stores.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	limiter, err := sluice.NewLimiter(store, "jobs", sluice.Limit{Count: 5, Period: time.Second, Burst: 5})
	if err != nil {
		return err
	}
	// The API may still deny requests, because it has other users. The transport sends these again when the API
	// permits.
	api := &http.Client{Transport: &client.Transport{}, Timeout: time.Minute}
	return work(ctx, limiter, api, url, os.Stdin)
}

// work posts each line of jobs as soon as the limit allows it.
func work(ctx context.Context, limiter *sluice.Limiter, api *http.Client, url string, jobs io.Reader) error {
	for lines := bufio.NewScanner(jobs); lines.Scan(); {
		if err := limiter.Wait(ctx, "the API", 1); err != nil {
			return err
		}
		if err := post(ctx, api, url, lines.Text()); err != nil {
			return err
		}
	}
	return nil
}

func post(ctx context.Context, api *http.Client, url, job string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(job))
	if err != nil {
		return err
	}
	request.Header.Set("Idempotency-Key", job) // the key makes it safe to send the request again
	response, err := api.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("job %q: %s", job, response.Status)
	}
	return nil
}
