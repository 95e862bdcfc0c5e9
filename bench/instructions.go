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

// counted is a contender with a server under callgrind: decisions are sent in two numbers, and the difference is
// their cost.
type counted struct {
	// record makes the contender ask the server at addr once; what runs a script is
	// then sent many times. It returns which of what was sent that is.
	record func(addr string)
	keys   int           // of the command, 0 is any
	paced  time.Duration // a decision this often, else as many as possible
	// admitted is the share that has to be.
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
		{"instructions: a log at its limit", "The same, for logs of 100 in 2 seconds, asked at 90 % of that", []contender{
			{"sluice/redisstore", ours, counted{record: func(addr string) { sluiceLog(addr, 100, 2*time.Second)(keysOf(1).at(0)) }, paced: logPace, least: 0.95, most: 1}},
			{"sorted set", rival, counted{record: sortedSetScript, paced: logPace, least: 0.95, most: 1}},
		}, instructions, cols},
	}
}

// logPace is a decision of 90 in 2 seconds: room for delays, below the limit.
const logPace = 2 * time.Second / 90

// sixteen makes the store gather 16 requests of different keys in a call.
func sixteen(addr string) {
	decide := sluiceRedis(addr, 20_000, 24*time.Hour)
	latencies(64, 300*time.Millisecond, keysOf(10_000), decide)
}

// The usual sliding log in a sorted set, with a member that the caller makes different.
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

// instructions measures what a decision costs the server.
func instructions(c contender) (sample, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, errors.New("valgrind is not here: install it from the system's packages, for example \"apt-get install valgrind\"")
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

// sent records the command of a decision, and what makes its script known.
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
		return nil, nil, fmt.Errorf("no call for %d keys was sent", c.keys)
	}
	return load, run, nil
}

// underCallgrind returns how many instructions a server runs in which n decisions are made.
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
		return 0, fmt.Errorf("%.4f are admitted, and should be %.4f to %.4f", share, c.least, c.most)
	}
	_ = client.ShutdownNoSave(context.Background()).Err() // the connection ends with it
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

// isAdmitted reads the replies of all that is counted: a number that is positive, or with
// such a number first, or ours.
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

// fits reads our script's reply, which is numbers of which none is negative if all fit.
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
