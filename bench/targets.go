package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// results has the results of all works.
type results []result

func (rs results) of(work string) (some results) {
	for _, r := range rs {
		if r.work == work {
			some = append(some, r)
		}
	}
	return some
}

// values returns a column of a contender by round, with NaN for rounds that failed.
func (rs results) values(work, name, column string) []float64 {
	for _, r := range rs.of(work) {
		if r.name == name {
			var v []float64
			for _, s := range r.samples {
				x, ok := s[column]
				if !ok {
					x = math.NaN()
				}
				v = append(v, x)
			}
			return v
		}
	}
	return nil
}

// target is a figure to reach.
type target struct {
	name  string // also the heading of its note in notes.md
	goal  float64
	least bool // whether the figure must be at least the goal; otherwise, it must be at most the goal
	// measured returns the figure of every round.
	measured func(results) []float64
}

// verdict returns the distance of the figure from the goal, and whether the distance is larger than the spread.
func (t target) verdict(mid, spread float64) string {
	by := t.goal - mid
	if t.least {
		by = -by
	}
	// Differences that are too small to be shown do not count.
	const shown = 0.0005
	within := spread > 0 && math.Abs(by) < spread
	switch {
	case by > -shown && within:
		return "met within noise"
	case by > -shown:
		return "met"
	case within:
		return "**missed** within noise"
	case t.goal == 0:
		return "**missed**"
	}
	return fmt.Sprintf("**missed by %.0f %%**", -100*by/t.goal)
}

// each combines figures of the same round by f, for each round.
func each(f func(v ...float64) float64, columns ...[]float64) []float64 {
	var all []float64
	for round := range columns[0] {
		var v []float64
		for _, c := range columns {
			if round < len(c) && !math.IsNaN(c[round]) {
				v = append(v, c[round])
			}
		}
		if len(v) == len(columns) {
			all = append(all, f(v...))
		}
	}
	return all
}

func quotient(v ...float64) float64 { return v[0] / v[1] }

// over returns the ratio of two contenders of one work, round by round.
func over(work, column, mine, theirs string) func(results) []float64 {
	return func(rs results) []float64 {
		return each(quotient, rs.values(work, mine, column), rs.values(work, theirs, column))
	}
}

// overBest returns the ratio of a contender to the best rival, round by round.
func overBest(work, column, mine string) func(results) []float64 {
	return func(rs results) []float64 {
		best := byRole(rs.of(work), rival, column)
		if len(best) == 0 {
			return nil
		}
		return over(work, column, mine, best[0].name)(rs)
	}
}

func figure(work, column, mine string) func(results) []float64 {
	return func(rs results) []float64 {
		return each(func(v ...float64) float64 { return v[0] }, rs.values(work, mine, column))
	}
}

const (
	store     = "sluice/memory"
	ourLimit  = "sluice.Limiter"
	shared    = "sluice/redisstore"
	hotKey    = "memory: one hot key, allowed"
	allKeys   = "memory: 1 M keys, uniform"
	byZipf    = "memory: 1 M keys, Zipf 1.1"
	newKeys   = "memory: 1 M new keys"
	aKeyTakes = "memory: what a key takes"
	aFlood    = "memory: a flood"
)

func targets() []target {
	return slices.Concat(memoryTargets(), doorTargets(), redisTargets(), streamTargets(), leaseTargets(), askedTargets(), replayTargets())
}

func memoryTargets() []target {
	return []target{
		{"memory: one hot key, CPU time over clock + hash", 1.5, false, over(hotKey, "CPU ns", store, "clock + hash")},
		{"memory: 1 M keys, two threads, time over x/time/rate's", 0.35, false, over(allKeys, "2 threads ns", store, "x/time/rate, sharded")},
		{"memory: 1 M keys, two threads, time over the best rival's", 0.5, false, overBest(allKeys, "2 threads ns", store)},
		{"sluice.Limiter: one hot key, CPU time over the best rival's", 0.95, false, overBest(hotKey, "CPU ns", ourLimit)},
		{"sluice.Limiter: Zipf 1.1, CPU time over the best rival's", 0.8, false, overBest(byZipf, "CPU ns", ourLimit)},
		{"memory: a new key, CPU time over the best rival's", 1, false, overBest(newKeys, "CPU ns", store)},
		{"sluice.Limiter: a new key, CPU time over the best rival's", 1, false, overBest(newKeys, "CPU ns", ourLimit)},
		{"memory: bytes a key", 40, false, figure(aKeyTakes, "bytes", store)},
		{"memory: bytes a key, stretch", 24, false, figure(aKeyTakes, "bytes", store)},
		{"memory: allocations, a known key", 0, false, figure(allKeys, "allocs", store)},
		{"memory: allocations, a new key of a full store", 0, false, figure(aFlood, "allocs", store)},
		{"memory: a full collection with a million keys, ms", 2, false, figure(aKeyTakes, "GC ms", store)},
		{"memory: a flood, share of limited keys that it frees", 0, false, figure(aFlood, "freed", store)},
		{"policy: three rules that match, CPU ns over the store's Take of the same charges", 300, false, figure(threeRules, "added CPU ns", "sluice/policy")},
		{"growth: CPU time with 10,000 rules that do not apply over 10", 1.15, false, over(literalRules, "CPU ns", sized(10_000), sized(10))},
		{"growth: the same with patterns", 1.15, false, over(patternRules, "CPU ns", sized(10_000), sized(10))},
		{"growth: CPU ns that 100,000 overrides add to a decision", 200, false, figure(growingOverrides, "added CPU ns", "with an override: 100000")},
		{"growth: ms until another instance has followed a change of one of 100,000 overrides", 1000, false, figure(followedOverrides, "followed ms", "PostgreSQL, overrides: 100000")},
		{"growth: ms until another instance has followed a change of one of 10,000 rules", 1000, false, figure(followedRules, "followed ms", "PostgreSQL, rules: 10000")},
	}
}

// doorTargets returns the targets of our middleware.
func doorTargets() (all []target) {
	for _, d := range doors {
		if d.role != ours {
			continue
		}
		name := strings.TrimPrefix(d.name, "sluice/")
		goals := map[string]float64{"allowed": 0.5, "refused": 0.5}
		if d.name == onePolicy { // a policy does more than the rivals
			goals = map[string]float64{"allowed": 0.75, "refused": 0.75, "allowed, fields copied": 0.75}
		}
		for _, w := range slices.Sorted(maps.Keys(goals)) {
			all = append(all, target{name + ", " + w + ": CPU time that it adds over what the best rival adds", goals[w], false, overBest("middleware: "+w, "added CPU ns", d.name)})
		}
		all = append(all, target{name + ", allowed: allocations that it adds", 4, false, figure("middleware: allowed", "added allocs", d.name)})
	}
	return all
}

func redisTargets() []target {
	const many, perSecond, used = "Redis: 64 callers, 10,000 keys", "per second", "CPU µs"
	all := []target{
		{"Redis: 64 callers, decisions a second over redis_rate's", 4, true, over(many, perSecond, shared, "redis_rate")},
		{"Redis: 64 callers, decisions a second over ulule's", 2, true, over(many, perSecond, shared, "ulule/limiter")},
		{"Redis: 64 callers, CPU time of client and server over ulule's", 0.4, false, over(many, used, shared, "ulule/limiter")},
		{"Redis: 64 callers, the same over an INCR a decision", 1, false, over(many, used, shared, "go-redis INCR")},
	}
	for _, callers := range []int{1, 64, 512} {
		all = append(all, target{fmt.Sprintf("Redis: p99 over redis_rate's, callers: %d", callers), 1, false,
			over(fmt.Sprintf("Redis: %d callers, 10,000 keys", callers), "p99 µs", shared, "redis_rate")})
	}
	for _, f := range []struct {
		callers int
		goal    float64
	}{{64, 4}, {512, 8}} {
		all = append(all, target{fmt.Sprintf("Redis: one hot key, decisions a second over one call each, callers: %d", f.callers), f.goal, true,
			over(fmt.Sprintf("Redis: %d callers, one hot key", f.callers), perSecond, shared, shared+", one call each")})
	}
	const allowed, refused, logs = "instructions: a token bucket, allowed", "instructions: a token bucket, refused", "instructions: a log at its limit"
	const col = "instructions"
	return append(all,
		target{"Redis: calls a decision about an attacker's key", 0.01, false, figure("Redis: 64 callers, an attacker's key", "calls", shared)},
		target{"Redis: instructions of a token bucket, in INCRs", 15, false, over(allowed, col, shared, "INCR")},
		target{"Redis: the same over redis_rate's", 1, false, over(allowed, col, shared, "redis_rate")},
		target{"Redis: refused, in INCRs", 11, false, over(refused, col, shared, "INCR")},
		target{"Redis: 16 in a call, in INCRs each", 7, false, over(allowed, col, shared+", 16 in a call", "INCR")},
		target{"Redis: instructions of a log at limit 100 over a sorted set's", 0.75, false, over(logs, col, shared, "sorted set")},
		target{"gateway: CPU time over the bare reverse proxy's", 1.1, false, over(gateway, "proxy CPU µs", sluiceProxy, bareProxy)},
		target{"gateway: CPU time over the same without telemetry", 1.05, false, over(seenGateway, "proxy CPU µs", sluiceProxy, unseenProxy)},
		target{"gateway: time over the bare reverse proxy's", 1.1, false, over(gateway, "p50 µs", sluiceProxy, bareProxy)},
	)
}

func replayTargets() []target {
	perSecond := func(work string) func(results) []float64 {
		return func(rs results) []float64 {
			return each(func(v ...float64) float64 { return 1e3 / v[0] }, rs.values(work, plainLog, "ns"))
		}
	}
	return []target{
		{"replay: million lines read a second, one core", 3, true, perSecond(linesRead)},
		{"replay: million requests decided by three rules a second, one core", 0.8, true, perSecond(linesDecided)},
		{"replay: two cores over one", 1.8, true, func(rs results) []float64 {
			return each(quotient, rs.values(linesDecided, plainLog, "ns"), rs.values(linesDecided, plainLog, "2 threads ns"))
		}},
		{"replay: time of a zstd log over a plain one's", 1.5, false, over(linesDecided, "ns", zstdLog, plainLog)},
	}
}
