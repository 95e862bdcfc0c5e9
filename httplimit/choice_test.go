package httplimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
)

var errDatabase = errors.New("the database is away")

// plans chooses by the header X-Plan, and counts by X-Key.
func plans(t *testing.T) func(*http.Request) (Choice, error) {
	store := memory.New()
	limiters := map[string]*sluice.Limiter{
		"free": policytest.Limiter(t, store, "2/hour"),
		"pro":  policytest.Limiter(t, store, "5/hour"),
	}
	return func(r *http.Request) (Choice, error) {
		c := Choice{Key: r.Header.Get("X-Key")}
		switch plan := r.Header.Get("X-Plan"); {
		case plan == "staff":
			return Choice{}, nil
		case plan == "broken":
			return c, errDatabase
		case c.Key == "":
			return c, fmt.Errorf("plans: %w", MissingError("an X-Key header"))
		default:
			c.Limiter = limiters[plan]
		}
		if r.Method == "POST" {
			c.Cost = 2
		}
		return c, nil
	}
}

// A program that cannot choose is logged once a second at most.
func TestLimitByLogs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.LimitBy(plans(t))(things)
	for range 2 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Plan", "broken")
		recorded(h, r)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), errDatabase.Error()) {
		t.Errorf("two failures within a second were logged as %q", log.String())
	}
}

// A turn in a queue is given up as it was taken, at its cost.
func TestLimitByGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := policytest.Limiter(t, memory.New(), "1/second burst 5 as leaky_bucket")
		h := LimitBy(func(*http.Request) (Choice, error) { return Choice{Limiter: limiter, Key: "k", Cost: 4}, nil })(things)
		if _, err := limiter.Take(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		recorded(h, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		if d, err := limiter.Take(t.Context(), "k", 4); err != nil || d.Delay != time.Second {
			t.Errorf("the next one waits for %v: %v", d.Delay, err)
		}
	})
}
