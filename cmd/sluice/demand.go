package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
)

const (
	demandPart  = "demand"
	demandEvery = 250 * time.Millisecond
	demandLasts = 2 * time.Second
	demandWaits = time.Second // for the board
	// After so many failures in a row somebody is told.
	demandFaults = 8
)

// exchangeDemand tells the instances that share the store what tenants of shared limits ask this one
// for, and hears it from them, until the context ends. Where nobody asks, nothing is said or heard.
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
			said := engine.Demand(now)
			if said == nil {
				continue
			}
			err := talkDemand(ctx, engine, board, id, said)
			switch {
			case ctx.Err() != nil:
			case err == nil && faults >= demandFaults:
				log.Info("shares are divided by what is asked of all instances again")
				faults = 0
			case err == nil:
				faults = 0
			default:
				if faults++; faults == demandFaults {
					log.Warn("shares are divided by what is asked of this instance alone: the others are not heard", "error", err)
				}
			}
		}
	}
}

func talkDemand(ctx context.Context, engine *policy.Engine, board *stores.Board, id string, said []byte) error {
	ctx, cancel := context.WithTimeout(ctx, demandWaits)
	defer cancel()
	if err := board.Post(ctx, demandPart, id, said, demandLasts); err != nil {
		return err
	}
	posted, err := board.Posted(ctx, demandPart)
	if err != nil {
		return err
	}
	delete(posted, id)
	others := make([][]byte, 0, len(posted))
	for _, said := range posted {
		others = append(others, said)
	}
	engine.HearDemand(time.Now(), others)
	return nil
}
