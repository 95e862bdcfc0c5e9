package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

// watch adds up what the engine decides, unless that is switched off.
func (s *serveSettings) watch(engine *policy.Engine, store *stores.Store, calls *storeCalls) recorded {
	if !s.telemetry {
		return recorded{}
	}
	info, _ := debug.ReadBuildInfo()
	recorder := telemetry.Watch(engine, telemetry.Config{Subjects: true, Version: version(info)})
	fleet := &telemetry.Fleet{Recorder: recorder, Store: seenStore(store, calls), Refusals: telemetry.KeepRefusals(engine)}
	if board := store.Board(); board != nil {
		fleet.Board = board
	}
	return recorded{recorder, fleet}
}

// keysEvery is how often keys in memory are counted, which takes milliseconds.
const keysEvery = 10 * time.Second

// seenStore returns what says how a store is doing.
func seenStore(store *stores.Store, calls *storeCalls) func() telemetry.Store {
	latency := &storeLatency{calls: calls}
	var mu sync.Mutex
	var keys uint64
	var counted time.Time
	return func() telemetry.Store {
		mu.Lock()
		defer mu.Unlock()
		if age := time.Since(counted); age >= keysEvery {
			keys, counted = uint64(store.Memory().Stats().Keys), time.Now()
		}
		seen := telemetry.Store{Kind: "memory", Keys: keys, Evicted: uint64(store.Memory().Losses().Freed)}
		shared := store.Failover()
		if shared == nil {
			return seen
		}
		status := shared.Status()
		seen.Kind, seen.Shards, seen.Took = "redis", len(status.Shards), latency.at(time.Now())
		for _, shard := range status.Shards {
			if shard.Away {
				seen.Away++
			}
		}
		return seen
	}
}

// recorded is what is seen of decisions, and is told of what happens to the policy. Without
// telemetry all are nil.
type recorded struct {
	recorder *telemetry.Recorder
	fleet    *telemetry.Fleet
}

func (r recorded) note(kind, text string) {
	if r.recorder != nil {
		r.recorder.Note(kind, text)
	}
}

// swapped notes that rules have changed. Overrides come and go too often for that.
func (r recorded) swapped(old, p *policy.Policy) {
	if old.Fingerprint() != p.Fingerprint() {
		r.note("reload", "policy loaded: "+changesInWords(p.Changes(old)))
	}
}

// noteRefused tells that a policy was refused, and why.
func (r *rules) noteRefused(err error) {
	text, _, more := strings.Cut(err.Error(), "\n")
	if more {
		text += " (and more)"
	}
	r.recorded.note("refused", text)
}

// noteHeld tells, after that, that one is in force again.
func (r *rules) noteHeld() {
	r.recorded.note("reload", "what is written is in force again")
}

// maxChanges bounds the changes in a text.
const maxChanges = 5

// changesInWords names the rules and the settings that differ. Where there are none, a list of networks has
// another file.
func changesInWords(all []policy.Change) string {
	if len(all) == 0 {
		return "a file of networks changed"
	}
	texts := make([]string, 0, maxChanges+1)
	for _, c := range all[:min(len(all), maxChanges)] {
		texts = append(texts, c.String())
	}
	if more := len(all) - maxChanges; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// run exchanges numbers with other instances until the context ends.
func (r recorded) run(ctx context.Context) {
	if r.fleet != nil {
		r.fleet.Run(ctx)
	}
}
