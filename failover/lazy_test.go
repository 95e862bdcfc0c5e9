package failover_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
)

// closing is a store that can be closed.
type closing struct {
	failover.Shared
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return nil
}

// A service starts without its shared store, and uses it as soon as it is there.
func TestOpenLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sv := faultstore.New(memory.New())
		shared := &closing{Shared: sv}
		var there atomic.Bool
		var tries atomic.Int64
		pending := failover.OpenLater(func(context.Context) (failover.Shared, error) {
			tries.Add(1)
			if !there.Load() {
				return nil, errors.New("no route to host")
			}
			return shared, nil
		})
		s := open(pending, failover.Config{})
		if !s.Status().Degraded() {
			t.Error("a store that has not been opened is in use")
		}
		p := plan(t, "10/day", sluice.FixedWindow)
		for range 4 {
			if r := take(t, s, "k", p, sluice.Local); !r.Origin.Degraded() || !r.Fits {
				t.Errorf("without a store: %+v", r)
			}
			time.Sleep(3 * time.Second)
		}
		st := s.Status()
		if pending.Ready() || !st.Degraded() || tries.Load() < 8 || tries.Load() > 20 || !strings.Contains(st.Shards[0].LastError.Error(), "no route to host") {
			t.Errorf("after %d tries: %+v", tries.Load(), st)
		}
		there.Store(true)
		until(t, 4*time.Second, "is used", func() bool { return pending.Ready() && !s.Status().Degraded() })
		until(t, time.Second, "is written back", func() bool { return s.Status().Owing == 0 })
		if r := take(t, s, "k", p, sluice.Local); r.Origin.Degraded() || r.Used != 5 {
			t.Errorf("with it: %+v, want 5 units used", r)
		}
		s.Close()
		if err := pending.Close(); err != nil || !shared.closed.Load() {
			t.Errorf("closed %v: %v", shared.closed.Load(), err)
		}
	})
}

// A store that was never opened can be closed, and one that was opened is asked for its parts and instances.
func TestOpenLaterPassesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := failover.OpenLater(func(ctx context.Context) (failover.Shared, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if _, err := never.Heartbeat(t.Context(), "me"); err == nil || never.Shard("2") != 0 {
			t.Errorf("before it is open: %v", err)
		}
		if err := never.Close(); err != nil {
			t.Error(err)
		}
		sv := faultstore.New(memory.New())
		sv.Others.Store(3)
		sv.Split(twoParts)
		opened := failover.OpenLater(func(context.Context) (failover.Shared, error) { return sv, nil })
		defer opened.Close()
		synctest.Wait()
		if n, err := opened.Heartbeat(t.Context(), "me"); n != 4 || err != nil || opened.Shard("2") != 1 || opened.Shard("1") != 0 {
			t.Errorf("%d instances, %v, parts %d and %d", n, err, opened.Shard("1"), opened.Shard("2"))
		}
	})
}
