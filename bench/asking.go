package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const redisBudget = 1500 * time.Millisecond

// asking measures decisions over Redis by a number of callers. It fails if the fraction of denials is not between
// the bounds least and most.
func asking(callers, n, count int, period time.Duration, least, most float64) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		s, err := startRedis()
		if err != nil {
			return nil, err
		}
		defer s.stop()
		all := keysOf(n)
		decide := c.start.(overRedis)(s.addr, count, period)
		latencies(callers, redisBudget/4, all, decide)
		calls, client, server, start := s.calls(), cpu(), s.cpu(), time.Now()
		took, admitted := latencies(callers, redisBudget, all, decide)
		wall, client, server := time.Since(start), cpu()-client, s.cpu()-server
		calls = s.calls() - calls
		decisions := float64(len(took))
		refused := 1 - float64(admitted)/decisions
		if c.role != floor && (refused < least || refused > most) {
			return nil, fmt.Errorf("the fraction of denials is %.4f, want %.4f to %.4f", refused, least, most)
		}
		if have, want := s.keys(), min(n, len(took)/callers); have < want {
			return nil, fmt.Errorf("the server has %d keys, want %d", have, want)
		}
		slices.Sort(took)
		us := func(d time.Duration) float64 { return float64(d) / 1000 }
		return sample{
			"per second":    decisions / wall.Seconds(),
			"CPU µs":        us(client+server) / decisions,
			"client CPU µs": us(client) / decisions,
			"server CPU µs": us(server) / decisions,
			"p50 µs":        us(took[len(took)/2]),
			"p99 µs":        us(took[len(took)*99/100]),
			"refused":       refused,
			"calls":         calls / decisions,
		}, nil
	}
}

// latencies makes decisions for a time of d, and returns how long each took.
func latencies(callers int, d time.Duration, all keys, decide func(string) bool) (took []time.Duration, admitted int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	deadline := time.Now().Add(d)
	for c := range callers {
		wg.Go(func() {
			var mine []time.Duration
			yes := 0
			at := c * 7919
			for start := time.Now(); start.Before(deadline); {
				if decide(all.at(at % all.len())) {
					yes++
				}
				end := time.Now()
				mine = append(mine, end.Sub(start))
				start = end
				at += 104729 // a prime: every key gets its turn
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

var scriptCalls = regexp.MustCompile(`cmdstat_(?:eval|evalsha):calls=(\d+)`)
var incrCalls = regexp.MustCompile(`cmdstat_incr:calls=(\d+)`)

// calls returns how many scripts the server has run, or how many INCRs if it has run no script.
func (s *server) calls() float64 {
	c := goRedis(s.addr)
	defer c.Close()
	info, err := c.Info(context.Background(), "commandstats").Result()
	must(err)
	found := scriptCalls.FindAllStringSubmatch(info, -1)
	if found == nil {
		found = incrCalls.FindAllStringSubmatch(info, -1)
	}
	sum := 0.0
	for _, f := range found {
		n, err := strconv.ParseFloat(f[1], 64)
		must(err)
		sum += n
	}
	return sum
}

func (s *server) keys() int {
	c := goRedis(s.addr)
	defer c.Close()
	n, err := c.DBSize(context.Background()).Result()
	must(err)
	return int(n)
}

// command is a command that a client has sent to a server.
type command []string

// sentBy returns the commands that clients send to the server while f runs. It leaves out the commands that scripts
// run.
func sentBy(addr string, f func()) []command {
	conn, err := net.Dial("tcp", addr)
	must(err)
	defer conn.Close()
	_, err = conn.Write([]byte("MONITOR\r\n"))
	must(err)
	lines := bufio.NewReader(conn)
	_, err = lines.ReadString('\n') // +OK
	must(err)
	f()
	const end = "the end"
	c := goRedis(addr)
	defer c.Close()
	must(c.Echo(context.Background(), end).Err())
	for all := []command(nil); ; {
		line, err := lines.ReadString('\n')
		must(err)
		client, text, _ := strings.Cut(line, "] ")
		switch cmd := unquoted(text); {
		case len(cmd) == 2 && cmd[1] == end:
			return all
		case !strings.HasSuffix(client, " lua"):
			all = append(all, cmd)
		}
	}
}

// unquoted returns the strings in a line of MONITOR's output.
func unquoted(line string) (all command) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		quoted, err := strconv.QuotedPrefix(line)
		must(err)
		s, err := strconv.Unquote(quoted)
		must(err)
		all, line = append(all, s), line[len(quoted):]
	}
	return all
}

// isRun reports whether c runs a script that the server has already loaded.
func isRun(c command) bool { return strings.EqualFold(c[0], "evalsha") }

// oneCallEach makes one call of our script for each decision. Its client only pipelines the calls of all callers.
// The store's coalescing is compared with this.
func oneCallEach(addr string, count int, period time.Duration) func(string) bool {
	var run command
	for _, c := range sentBy(addr, func() { sluiceRedis(addr, count, period)(keysOf(1).at(0)) }) {
		if isRun(c) {
			run = c
		}
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	must(err)
	ctx := context.Background()
	return func(string) bool {
		reply, err := client.Do(ctx, client.B().Arbitrary(run...).Build()).ToString()
		must(err)
		return fits(reply)
	}
}

const (
	hot   = 50_000_000 // a day, and as the burst: more than the callers take
	roomy = 5_000      // the same for one of many keys
)

func redisWorks() []work {
	cols := []string{"per second", "CPU µs", "client CPU µs", "server CPU µs", "p50 µs", "p99 µs"}
	var works []work
	for _, callers := range []int{1, 64, 512} {
		each := redisDeciders
		if callers > 1 {
			each = append(slices.Clone(each), contender{"sluice/redisstore, one call each", other, overRedis(oneCallEach)})
		}
		works = append(works,
			work{fmt.Sprintf("Redis: %d callers, 10,000 keys", callers), "Token buckets of 5,000 a day, so that nothing expires; all requests are admitted", redisDeciders, asking(callers, 10_000, roomy, 24*time.Hour, 0, 0), cols},
			work{fmt.Sprintf("Redis: %d callers, one hot key", callers), "A token bucket of 50 million a day; all requests are admitted", each, asking(callers, 1, hot, 24*time.Hour, 0, 0), cols})
	}
	attacked := slices.DeleteFunc(slices.Clone(redisDeciders), func(c contender) bool { return c.name == "throttled/throttled" })
	return append(works, work{"Redis: 64 callers, an attacker's key", "A token bucket of 10 a second; nearly all requests are denied. Calls are the scripts, or `INCR`s, that the server has run per decision",
		attacked, asking(64, 1, 10, time.Second, 0.9, 1), append(slices.Clone(cols), "calls", "refused")})
}
