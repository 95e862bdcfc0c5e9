package server

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
)

const (
	demandPart    = "demand"
	demandEvery   = 250 * time.Millisecond
	demandLasts   = 2 * time.Second
	demandTimeout = time.Second // bounds one exchange
	// demandFaults is the number of consecutive failures after which a failure is logged.
	demandFaults = 8
)

// exchangeDemand posts the demand of tenants for shared limits to the other instances that share the store, and
// reads the demand that they posted. It returns when ctx ends. Without demand on this instance, it does nothing.
func exchangeDemand(ctx context.Context, engine *policy.Engine, board *stores.Board, log *slog.Logger) {
	if board == nil {
		return
	}
	id := rand.Text()
	ticker := time.NewTicker(demandEvery)
	defer ticker.Stop()
	faults := 0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			demand := engine.Demand(now)
			if demand == nil {
				continue
			}
			err := exchangeDemandOnce(ctx, engine, board, id, demand)
			switch {
			case ctx.Err() != nil:
			case err == nil && faults >= demandFaults:
				log.Info("exchanging demand with the other instances again")
				faults = 0
			case err == nil:
				faults = 0
			default:
				if faults++; faults == demandFaults {
					log.Warn("demand of other instances is unknown: shared limits are divided by the demand on this instance", "error", err)
				}
			}
		}
	}
}

func exchangeDemandOnce(ctx context.Context, engine *policy.Engine, board *stores.Board, id string, demand []byte) error {
	ctx, cancel := context.WithTimeout(ctx, demandTimeout)
	defer cancel()
	if err := board.Post(ctx, demandPart, id, demand, demandLasts); err != nil {
		return err
	}
	posted, err := board.Posted(ctx, demandPart)
	if err != nil {
		return err
	}
	delete(posted, id)
	others := make([][]byte, 0, len(posted))
	for _, demand := range posted {
		others = append(others, demand)
	}
	engine.ReceiveDemand(time.Now(), others)
	return nil
}
