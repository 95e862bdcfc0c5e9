package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice"
)

// counted is a contender whose server runs under callgrind. It is measured with two different numbers of decisions;
// the difference gives the cost of a decision.
type counted struct {
	// record makes the contender ask the server at addr for a decision. The command that this sends to run its
	// script is then sent many times.
	record func(addr string)
	keys   int           // the number of keys of that command; 0 means any
	paced  time.Duration // if not 0, the time between decisions; otherwise as many decisions as possible are made
	// The fraction of admitted decisions has to be between the bounds least and most.
	least, most float64
}

const aboutInstructions = "Instructions of redis-server under callgrind, per decision; commands are pipelined"

func instructionWorks() []work {
	cols := []string{"instructions"}
	unit := contender{"INCR", floor, counted{record: func(addr string) { incr(addr, 0, 0)(keysOf(1).at(0)) }, least: 1, most: 1}}
	bucket := func(decide overRedis, count int) func(string) {
		return func(addr string) { decide(addr, count, 24*time.Hour)(keysOf(1).at(0)) }
	}
	const allowed, refused = 20_000, 10
	nothing := func(name, script string) contender {
		return contender{name, floor, counted{record: func(addr string) {
			must(redis.NewScript(script).Run(context.Background(), goRedis(addr), []string{keysOf(1).at(0)}).Err())
			must(redis.NewScript(script).Run(context.Background(), goRedis(addr), []string{keysOf(1).at(0)}).Err())
		}, least: 1, most: 1}}
	}
	return []work{
		{"instructions: a token bucket, allowed", aboutInstructions, []contender{unit,
			nothing("a script that does nothing", "return 1"),
			nothing("a script that asks the time", "redis.call('TIME') return 1"),
			{"sluice/redisstore", ours, counted{record: bucket(sluiceRedis, allowed), least: 1, most: 1}},
			{"sluice/redisstore, 16 in a call", other, counted{record: sixteen, keys: 16, least: 1, most: 1}},
			{"redis_rate", rival, counted{record: bucket(redisRate, allowed), least: 1, most: 1}},
		}, instructions, cols},
		{"instructions: a token bucket, refused", aboutInstructions, []contender{unit,
			{"sluice/redisstore", ours, counted{record: bucket(sluiceRedis, refused), most: 0.05}},
			{"redis_rate", rival, counted{record: bucket(redisRate, refused), most: 0.05}},
		}, instructions, cols},
		{"instructions: a log at its limit", "The same, for logs of 100 in 2 seconds, with requests at 90 % of that rate", []contender{
			{"sluice/redisstore", ours, counted{record: func(addr string) { sluiceLog(addr, 100, 2*time.Second)(keysOf(1).at(0)) }, paced: logPace, least: 0.95, most: 1}},
			{"sorted set", rival, counted{record: sortedSetScript, paced: logPace, least: 0.95, most: 1}},
		}, instructions, cols},
	}
}

// logPace is the time between decisions at a rate of 90 in 2 seconds, which is below the limit, so that delays do
// no harm.
const logPace = 2 * time.Second / 90

// sixteen makes the store send 16 requests for different keys in one call.
func sixteen(addr string) {
	decide := sluiceRedis(addr, 20_000, 24*time.Hour)
	latencies(64, 300*time.Millisecond, keysOf(10_000), decide)
}

// usualLog is the usual sliding log in a sorted set. The caller makes the members different from each other.
var usualLog = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now, now .. '-' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
return 1`)

func sortedSetScript(addr string) {
	must(usualLog.Run(context.Background(), goRedis(addr), []string{keysOf(1).at(0)}, 100, 2_000_000, "12345").Err())
}

// instructions measures the instructions that the server runs for a decision.
func instructions(c contender) (sample, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, errors.New("valgrind is not installed: install it from the system's packages, for example \"apt-get install valgrind\"")
	}
	what := c.start.(counted)
	load, run, err := what.sent()
	if err != nil {
		return nil, err
	}
	few, many := 500, 2500
	if what.paced > 0 {
		few, many = int(4*time.Second/what.paced), int(12*time.Second/what.paced)
	}
	var wg sync.WaitGroup
	var spent [2]float64
	var errs [2]error
	for i, n := range []int{few, many} {
		wg.Go(func() { spent[i], errs[i] = what.underCallgrind(load, run, n) })
	}
	wg.Wait()
	each := float64(max(1, what.keys))
	return sample{"instructions": (spent[1] - spent[0]) / float64(many-few) / each}, errors.Join(errs[:]...)
}

// sent records the command of a decision, and the commands that load its script.
func (c counted) sent() (load []command, run command, err error) {
	s, err := startRedis()
	if err != nil {
		return nil, nil, err
	}
	defer s.stop()
	for _, cmd := range sentBy(s.addr, func() { c.record(s.addr) }) {
		switch strings.ToLower(cmd[0]) {
		case "eval", "script":
			load = append(load, cmd)
		case "incr":
			run = cmd
		case "evalsha":
			if c.keys == 0 || cmd[2] == strconv.Itoa(c.keys) {
				run = cmd
			}
		}
	}
	if run == nil {
		return nil, nil, fmt.Errorf("no call with %d keys was sent", c.keys)
	}
	return load, run, nil
}

// underCallgrind returns how many instructions a server runs in all if it makes n decisions.
func (c counted) underCallgrind(load []command, run command, n int) (float64, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "callgrind")
	s, err := startRedis("valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file="+file)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	client := redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2, DisableIdentity: true, PoolSize: 1, ReadTimeout: time.Minute, MaxRetries: -1})
	for _, cmd := range load {
		must(client.Do(context.Background(), cmd.args()...).Err())
	}
	yes, err := c.replay(client, run, n)
	if err != nil {
		return 0, err
	}
	if share := float64(yes) / float64(n); share < c.least || share > c.most {
		return 0, fmt.Errorf("the fraction of admitted decisions is %.4f, want %.4f to %.4f", share, c.least, c.most)
	}
	_ = client.ShutdownNoSave(context.Background()).Err() // it returns an error, because the shutdown closes the connection
	_ = s.cmd.Wait()
	return totals(file)
}

// replay sends the command n times, in pipelines, and returns how often it was admitted.
func (c counted) replay(client *redis.Client, run command, n int) (admitted int, err error) {
	group := 16
	if c.paced > 0 {
		group = 5
	}
	start := time.Now()
	for i := 0; i < n; i += group {
		time.Sleep(time.Until(start.Add(time.Duration(i) * c.paced)))
		p := client.Pipeline()
		for range min(group, n-i) {
			p.Do(context.Background(), run.args()...)
		}
		replies, err := p.Exec(context.Background())
		if err != nil {
			return 0, err
		}
		for _, r := range replies {
			if isAdmitted(r.(*redis.Cmd).Val()) {
				admitted++
			}
		}
	}
	return admitted, nil
}

func (c command) args() []any {
	all := make([]any, len(c))
	for i, a := range c {
		all[i] = a
	}
	return all
}

// isAdmitted reads the reply of any contender: a number that is positive if the decision is admitted, a list that
// starts with such a number, or the reply of our script.
func isAdmitted(reply any) bool {
	switch r := reply.(type) {
	case int64:
		return r > 0
	case []any:
		return isAdmitted(r[0])
	case string:
		return fits(r)
	}
	return false
}

// fits reads the reply of our script: numbers, none of which is negative if all charges fit.
func fits(reply string) bool {
	for b := []byte(reply); len(b) >= 8; b = b[8:] {
		if math.Float64frombits(binary.LittleEndian.Uint64(b)) < 0 {
			return false
		}
	}
	return len(reply) >= 16
}

var totalsLine = regexp.MustCompile(`^(?:totals|summary): (\d+)`)

func totals(file string) (float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := totalsLine.FindStringSubmatch(lines.Text()); m != nil {
			return strconv.ParseFloat(m[1], 64)
		}
	}
	return 0, errors.New("callgrind has written no total")
}

func sluiceLog(addr string, count int, period time.Duration) func(string) bool {
	return sluiceOf(addr, sluice.Limit{Count: int64(count), Period: period, Algorithm: sluice.SlidingWindowLog})
}
