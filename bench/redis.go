package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/redisstore"
)

// overRedis makes a decider over the server at addr.
type overRedis func(addr string, count int, period time.Duration) (decide func(key string) bool)

var redisDeciders = []contender{
	{"go-redis INCR", floor, overRedis(incr)},
	{"sluice/redisstore", ours, overRedis(sluiceRedis)},
	{"redis_rate", rival, overRedis(redisRate)},
	{"ulule/limiter", rival, overRedis(ululeRedis)},
	{"throttled", rival, overRedis(throttledRedis)},
}

func goRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

func incr(addr string, _ int, _ time.Duration) func(string) bool {
	c, ctx := goRedis(addr), context.Background()
	return func(key string) bool { return c.Incr(ctx, key).Val() > 0 }
}

func sluiceRedis(addr string, count int, period time.Duration) func(string) bool {
	return sluiceOf(addr, limitOf(count, period))
}

func sluiceOf(addr string, limit sluice.Limit) func(string) bool {
	ctx := context.Background()
	s, err := redisstore.Open(ctx, "redis://"+addr)
	must(err)
	l, err := sluice.NewLimiter(s, "", limit)
	must(err)
	return func(key string) bool {
		d, err := l.Take(ctx, key, 1)
		must(err)
		return d.Allowed
	}
}

func redisRate(addr string, count int, period time.Duration) func(string) bool {
	l, ctx := redis_rate.NewLimiter(goRedis(addr)), context.Background()
	limit := redis_rate.Limit{Rate: count, Burst: count, Period: period}
	return func(key string) bool {
		r, err := l.Allow(ctx, key, limit)
		must(err)
		return r.Allowed > 0
	}
}

func ululeRedis(addr string, count int, period time.Duration) func(string) bool {
	s, err := ululeredis.NewStore(goRedis(addr))
	must(err)
	l, ctx := ulule.New(s, ulule.Rate{Period: period, Limit: int64(count)}), context.Background()
	return func(key string) bool {
		c, err := l.Get(ctx, key)
		must(err)
		return !c.Reached
	}
}

func throttledRedis(addr string, count int, period time.Duration) func(string) bool {
	s, err := goredisstore.NewCtx(goRedis(addr), "t:")
	must(err)
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerDuration(count, period), MaxBurst: count - 1})
	must(err)
	l.SetMaxCASAttemptsLimit(1 << 20)
	ctx := context.Background()
	return func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		must(err)
		return !limited
	}
}

// server is a server of this run alone.
type server struct {
	cmd  *exec.Cmd
	addr string
	dir  string
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer l.Close()
	return l.Addr().String()
}

func startRedis() (*server, error) {
	addr := freeAddress()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr, dir: dir, cmd: exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redis-server: %w: install it from the system's packages", err)
	}
	if err := s.await(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// await waits until the server takes connections.
func (s *server) await() error {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			return c.Close()
		}
	}
	return errors.New("the server does not take connections")
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// cpu returns the processor time of the server, to a hundredth of a second.
func (s *server) cpu() time.Duration {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat"))
	must(err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime, the 14th and 15th of all
		n, err := strconv.ParseInt(f, 10, 64)
		must(err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// asking measures decisions over Redis by a number of callers.
func asking(callers, keys, count int, period time.Duration, least, most float64) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		s, err := startRedis()
		if err != nil {
			return nil, err
		}
		defer s.stop()
		names := keysOf(keys)
		decide := c.start.(overRedis)(s.addr, count, period)
		latencies(callers, redisBudget/4, names, decide)
		client, server, start := cpu(), s.cpu(), time.Now()
		took, admitted := latencies(callers, redisBudget, names, decide)
		wall := time.Since(start)
		n := float64(len(took))
		refused := 1 - float64(admitted)/n
		if c.role != floor && (refused < least || refused > most) {
			return nil, fmt.Errorf("%.4f are refused, and should be %.4f to %.4f", refused, least, most)
		}
		slices.Sort(took)
		us := func(d time.Duration) float64 { return float64(d) / 1000 }
		return sample{
			"per second":    n / wall.Seconds(),
			"client CPU µs": us(cpu()-client) / n,
			"server CPU µs": us(s.cpu()-server) / n,
			"CPU µs":        us(cpu()-client+s.cpu()-server) / n,
			"p50 µs":        us(took[len(took)/2]),
			"p99 µs":        us(took[len(took)*99/100]),
			"refused":       refused,
		}, nil
	}
}

var redisBudget = 2 * time.Second

func latencies(callers int, d time.Duration, keys []string, decide func(string) bool) (took []time.Duration, admitted int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	deadline := time.Now().Add(d)
	for c := range callers {
		wg.Go(func() {
			var mine []time.Duration
			yes := 0
			at := c * 7919
			for start := time.Now(); start.Before(deadline); {
				if decide(keys[at%len(keys)]) {
					yes++
				}
				end := time.Now()
				mine = append(mine, end.Sub(start))
				start = end
				at += 104729
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			admitted += yes
		})
	}
	wg.Wait()
	return took, admitted
}

func redisWorks() []work {
	cols := []string{"per second", "CPU µs", "client CPU µs", "server CPU µs", "p50 µs", "p99 µs", "refused"}
	var works []work
	for _, callers := range []int{1, 64, 512} {
		name := fmt.Sprintf("Redis: %d callers", callers)
		works = append(works,
			work{name + ", 10,000 keys", "a token bucket of a million a minute; all admitted", redisDeciders, asking(callers, 10_000, 1_000_000, time.Minute, 0, 0), cols},
			work{name + ", one hot key", "a token bucket of a hundred million a minute; all admitted", redisDeciders, asking(callers, 1, 100_000_000, time.Minute, 0, 0), cols})
	}
	return append(works,
		work{"Redis: 64 callers, one key that is refused", "a token bucket of 10 a second, so that most are refused; a library may remember that", redisDeciders, asking(64, 1, 10, time.Second, 0.5, 1), cols},
		work{"Redis: what a bucket takes", "MEMORY USAGE of the key of a token bucket of 100 a minute that is empty", []contender{
			{"sluice/redisstore", ours, fill(asked(sluiceRedis))},
			{"redis_rate", rival, fill(asked(redisRate))},
			{"throttled", rival, fill(asked(throttledRedis))},
		}, keySize, []string{"bytes"}},
		work{"Redis: what a log takes", "MEMORY USAGE of the key of a sliding log of 100 a minute that is full", []contender{
			{"sluice/redisstore", ours, fill(asked(sluiceLog))},
			{"sorted set", rival, fill(sortedSet)},
		}, keySize, []string{"bytes"}})
}

const filled = 100

// fill uses up a limit of filled units a minute under one key.
type fill func(addr string)

// asked is a decider that is asked until it refuses.
func asked(start overRedis) fill {
	return func(addr string) {
		decide := start(addr, filled, time.Minute)
		n := 0
		for n < 2*filled && decide(keysOf(1)[0]) {
			n++
		}
		if n < filled || n > filled+filled/10 {
			panic(fmt.Sprintf("%d were admitted, want about %d", n, filled))
		}
	}
}

func sluiceLog(addr string, count int, period time.Duration) func(string) bool {
	return sluiceOf(addr, sluice.Limit{Count: int64(count), Period: period, Algorithm: sluice.SlidingWindowLog})
}

// sortedSet is a log as it is mostly kept: the time as the score, and as the member the
// time and a number, so that two requests of one microsecond are two.
func sortedSet(addr string) {
	c, ctx := goRedis(addr), context.Background()
	for i := range filled {
		now := time.Now().UnixMicro()
		must(c.ZAdd(ctx, "log:"+keysOf(1)[0], redis.Z{Score: float64(now), Member: fmt.Sprintf("%d-%d", now, i)}).Err())
	}
	if n := c.ZCard(ctx, "log:"+keysOf(1)[0]).Val(); n != filled {
		panic(fmt.Sprintf("%d members, want %d", n, filled))
	}
}

// keySize measures the key of a full limit.
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
		if strings.Contains(key, keysOf(1)[0]) {
			keys = append(keys, key)
		}
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("the state is in %d keys: %q", len(keys), keys)
	}
	return sample{"bytes": float64(client.MemoryUsage(ctx, keys[0], 0).Val())}, nil
}
