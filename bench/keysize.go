package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func keySizeWorks() []work {
	return []work{
		{"Redis: what a bucket takes", "`MEMORY USAGE` of the key of a token bucket of 100 a minute that is used up", []contender{
			{"sluice/redisstore", ours, fill(asked(sluiceRedis))},
			{"redis_rate", rival, fill(asked(redisRate))},
			{"throttled/throttled", rival, fill(asked(throttledRedis))},
		}, keySize, []string{"bytes"}},
		{"Redis: what a log takes", "`MEMORY USAGE` of the key of a sliding log of 100 a minute that is full", []contender{
			{"sluice/redisstore", ours, fill(asked(sluiceLog))},
			{"sorted set", rival, fill(sortedSet)},
		}, keySize, []string{"bytes"}},
	}
}

const filled = 100

// fill uses up a limit of filled units a minute under one key.
type fill func(addr string)

// asked fills the limit by asking a decider until it denies.
func asked(start overRedis) fill {
	return func(addr string) {
		decide := start(addr, filled, time.Minute)
		n := 0
		for n < 2*filled && decide(keysOf(1).at(0)) {
			n++
		}
		if n < filled || n > filled+filled/10 {
			panic(fmt.Sprintf("%d decisions were admitted, want about %d", n, filled))
		}
	}
}

// sortedSet fills a log of the usual kind. The score of a request is its time. The member is the time and a number,
// so that two requests in one microsecond are two members.
func sortedSet(addr string) {
	c, ctx := goRedis(addr), context.Background()
	for i := range filled {
		now := time.Now().UnixMicro()
		must(c.ZAdd(ctx, "log:"+keysOf(1).at(0), redis.Z{Score: float64(now), Member: fmt.Sprintf("%d-%d", now, i)}).Err())
	}
	if n := c.ZCard(ctx, "log:"+keysOf(1).at(0)).Val(); n != filled {
		panic(fmt.Sprintf("the set has %d members, want %d", n, filled))
	}
}

// keySize measures the memory that the key of a full limit takes.
func keySize(c contender) (sample, error) {
	s, err := startRedis()
	if err != nil {
		return nil, err
	}
	defer s.stop()
	c.start.(fill)(s.addr)
	client, ctx := goRedis(s.addr), context.Background()
	var keys []string
	for _, key := range client.Keys(ctx, "*").Val() {
		if strings.Contains(key, keysOf(1).at(0)) {
			keys = append(keys, key)
		}
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("the state is in %d keys: %q", len(keys), keys)
	}
	return sample{"bytes": float64(client.MemoryUsage(ctx, keys[0], 0).Val())}, nil
}
