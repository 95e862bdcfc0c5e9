package redisstore

import (
	"context"
	"fmt"

	"github.com/sluicehq/sluice"
)

// TimedStore is a Store whose time a test sets. Nothing that it writes expires.
type TimedStore struct{ *Store }

// TakeAt takes at now, in microseconds since the Unix epoch.
func (s TimedStore) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.TakeAllAt(ctx, now, [][]sluice.Charge{charges}, [][]sluice.Receipt{receipts})
}

// TakeAllAt takes several times at now, in one call of the script.
func (s TimedStore) TakeAllAt(ctx context.Context, now int64, charges [][]sluice.Charge, receipts [][]sluice.Receipt) error {
	c := &call{known: make(map[string]uint16)}
	for i := range charges {
		if err := sluice.CheckCharges(charges[i], receipts[i]); err != nil {
			return err
		}
		c.requests = append(c.requests, s.request(charges[i], false))
	}
	c.build()
	reply, err := s.client.Do(ctx, s.client.B().Arbitrary("EVAL", script, fmt.Sprint(len(c.keys))).
		Keys(c.keys...).Args(string(c.arg), fmt.Sprint(now)).Build()).ToString()
	if err != nil {
		return err
	}
	if err := c.deal(reply); err != nil {
		return err
	}
	for i, r := range c.requests {
		if err := r.receipts(receipts[i]); err != nil {
			return err
		}
		s.requests.Put(r)
	}
	return nil
}
