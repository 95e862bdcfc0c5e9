package guesses_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/guesses"
)

// door is a Limiter whose right token is "secret".
type door struct {
	*guesses.Limiter
	looked atomic.Int64
	away   atomic.Bool
}

func (d *door) try(from, token string) (right bool, err error) {
	err = d.Check(from, "a door", token, func() guesses.Verdict {
		d.looked.Add(1)
		right = token == "secret"
		switch {
		case d.away.Load():
			right = false
			return guesses.Undecided
		case right:
			return guesses.Right
		}
		return guesses.Wrong
	})
	return right, err
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &door{Limiter: guesses.New(slog.New(slog.NewTextHandler(&log, nil)))}
		if right, err := d.try("192.0.2.1:1000", "secret"); !right || err != nil {
			t.Fatal(right, err)
		}
		// Whatever the ports, and at the same time.
		var guessing sync.WaitGroup
		var many atomic.Int64
		for i := range 2000 {
			guessing.Go(func() {
				right, err := d.try(fmt.Sprintf("192.0.2.1:%d", 1001+i), fmt.Sprint(i))
				if right {
					t.Error("a guess is right")
				}
				if _, ok := errors.AsType[*guesses.TooMany](err); ok {
					many.Add(1)
				}
			})
		}
		guessing.Wait()
		if many.Load() != 2000-guesses.PerMinute || d.looked.Load() != 1+guesses.PerMinute {
			t.Errorf("%d of 2000 were too many, %d tokens were looked at", many.Load(), d.looked.Load())
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), `door="a door"`) {
			t.Errorf("the log has %d lines:\n%s", lines, log.String())
		}
		// A right guess is none of those that are looked at, and the token that the address used before is.
		if right, err := d.try("192.0.2.1:9", "secret"); !right || err != nil {
			t.Errorf("a caller that shares the address: %v, %v", right, err)
		}
		if right, err := d.try("192.0.2.2:9", "secret"); !right || err != nil {
			t.Errorf("a caller from elsewhere: %v, %v", right, err)
		}
		time.Sleep(time.Minute)
		if _, err := d.try("192.0.2.1:9", "x"); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

func TestLimitOfNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &door{Limiter: guesses.New(slog.New(slog.NewTextHandler(&log, nil)))}
		// Right tokens, and those that nobody can judge, cost nothing; a guess while they are not known
		// is no token that the address has used.
		for i := range 100 {
			d.away.Store(i%2 == 0)
			if _, err := d.try("[2001:db8::1]:1", "secret"); err != nil {
				t.Fatal(err)
			}
		}
		d.away.Store(true)
		_, _ = d.try("[2001:db8::99]:1", "guess")
		d.away.Store(false)
		for i := range 2 * guesses.PerMinute {
			_, err := d.try(fmt.Sprintf("[2001:db8::%x]:1", i+2), "guess")
			if many, ok := errors.AsType[*guesses.TooMany](err); ok != (i >= guesses.PerMinute) || ok && many.Seconds() != 6 {
				t.Errorf("guess %d of a network: %v", i, err)
			}
		}
		if _, err := d.try("[2001:db8::99]:1", "guess"); err == nil {
			t.Error("a guess from before is looked at")
		}
		// A flood from everywhere does not fill the log.
		for i := range 5000 {
			_, _ = d.try(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256), "guess")
		}
		if lines := strings.Count(log.String(), "\n"); lines > 20 {
			t.Errorf("the log has %d lines", lines)
		}
	})
}
