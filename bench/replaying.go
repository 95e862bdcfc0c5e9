package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const (
	linesRead    = "replay: 2 million hostile lines, read"
	linesDecided = "replay: 2 million hostile lines, decided by three rules"
	plainLog     = "sluice, plain"
	zstdLog      = "sluice, zstd"
)

const replayedRules = `version: 1
rules:
  - {name: second, key: [client_ip], limit: 10/second}
  - {name: minute, key: [client_ip], limit: 100/minute}
  - {name: day, key: [client_ip], limit: 5000/day}
`

// reading is a contender that reads a log of count lines, on all processors that it may use.
type reading struct {
	count      int
	compressed bool
	all        func(file string) (int64, error) // returns how many lines it has read
}

// program is a contender that runs another program on the log.
type program struct {
	count int
	args  []string // the arguments before the file
	lines bool     // the program prints how many lines it has read
}

func replayWorks() []work {
	columns := []string{"ns", "CPU ns", "2 threads ns", "peak MiB"}
	// Counting by status is the least that an analysis does with a line.
	byStatus := `{ n++; split($3, s, " "); c[s[1]]++ } END { print n }`
	return []work{
		{
			linesRead, "The time for a line of an access log of 440 MB, of which all fields are parsed, on one processor and on two. Awk only counts by status; GoAccess makes its whole report, but of a twentieth of the lines",
			[]contender{
				{"bare Go line counter", floor, reading{hostileCount, false, countLines}},
				{plainLog, ours, reading{hostileCount, false, readLog}},
				{zstdLog, other, reading{hostileCount, true, readLog}},
				{"gawk", rival, program{hostileCount, []string{"gawk", "-b", `-F"`, byStatus}, true}},
				{"mawk", rival, program{hostileCount, []string{"mawk", `-F"`, byStatus}, true}},
				{"GoAccess", rival, program{aSlice, []string{"goaccess", "--log-format=COMBINED", "--no-progress", "--no-global-config", "-o", "json", "-f"}, false}},
			}, goThrough, columns,
		},
		{
			linesDecided, "The same, but every request is decided by three rules that match it, and the report is made",
			[]contender{
				{plainLog, ours, reading{hostileCount, false, replayLog}},
				{zstdLog, other, reading{hostileCount, true, replayLog}},
			}, goThrough, columns,
		},
	}
}

// goThrough measures a contender that reads the log.
func goThrough(c contender) (sample, error) {
	if cmd, ok := c.start.(program); ok {
		return cmd.measure()
	}
	r := c.start.(reading)
	file, err := hostileLog(r.count, r.compressed)
	if err != nil {
		return nil, err
	}
	s := sample{}
	for _, threads := range []int{1, 2} {
		runtime.GOMAXPROCS(threads)
		startCPU, start := cpu(), time.Now()
		lines, err := r.all(file)
		took, used := time.Since(start), cpu()-startCPU
		switch {
		case err != nil:
			return nil, err
		case lines != int64(r.count):
			return nil, fmt.Errorf("the contender has read %d of %d lines", lines, r.count)
		case threads == 1:
			s["ns"], s["CPU ns"] = float64(took)/float64(r.count), float64(used)/float64(r.count)
		default:
			s["2 threads ns"] = float64(took) / float64(r.count)
		}
	}
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	s["peak MiB"] = float64(u.Maxrss) / 1024
	return s, nil
}

func (c program) measure() (sample, error) {
	file, err := hostileLog(c.count, false)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.args[0], append(c.args[1:len(c.args):len(c.args)], file)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = withParent()
	start := time.Now()
	out, err := cmd.Output()
	took := time.Since(start)
	if err != nil {
		return nil, err
	}
	if c.lines && string(bytes.TrimSpace(out)) != fmt.Sprint(c.count) {
		return nil, fmt.Errorf("the program has not read every line: it printed %.20q", out)
	}
	n := float64(c.count)
	state := cmd.ProcessState
	return sample{
		"ns": float64(took) / n, "CPU ns": float64(state.UserTime()+state.SystemTime()) / n,
		"peak MiB": float64(state.SysUsage().(*syscall.Rusage).Maxrss) / 1024,
	}, nil
}

// countLines only counts the ends of lines.
func countLines(file string) (n int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 256<<10)
	for {
		got, err := f.Read(buf)
		n += int64(bytes.Count(buf[:got], []byte("\n")))
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return 0, err
		}
	}
}

func combinedLog() (feed.Options, error) {
	f, err := accesslog.Lookup("combined", accesslog.Options{})
	return feed.Options{Format: f}, err
}

func readLog(file string) (int64, error) {
	o, err := combinedLog()
	if err != nil {
		return 0, err
	}
	stats, err := feed.Read(context.Background(), []string{file}, o, func(b *feed.Batch) error {
		b.Release()
		return nil
	})
	if stats.Unreadable > 0 {
		return 0, fmt.Errorf("%d lines could not be parsed; the first error: %s", stats.Unreadable, stats.Unread[0].Why)
	}
	return stats.Requests, err
}

// clocked is a memory store that reports its losses.
type clocked struct{ *memory.Store }

func (c clocked) Evicted() int64 { return c.Losses().Evicted }

func replayLog(file string) (int64, error) {
	o, err := combinedLog()
	if err != nil {
		return 0, err
	}
	doc, err := policyfile.Decode("bench.yaml", []byte(replayedRules))
	if err != nil {
		return 0, err
	}
	r, err := replay.Run(context.Background(), replay.Config{
		Files: []string{file}, Feed: o, Document: doc, Compile: policy.Compile,
		NewStore: func(maxBytes int64) replay.Store { return clocked{memory.NewSize(maxBytes)} },
	})
	if err != nil {
		return 0, err
	}
	for _, name := range r.Order {
		if matched := r.Rules[name].Matched; matched != r.Requests {
			return 0, fmt.Errorf("rule %s matched %d of %d requests", name, matched, r.Requests)
		}
	}
	if r.Refused == 0 || r.Refused == r.Requests {
		return 0, fmt.Errorf("%d of %d requests were denied", r.Refused, r.Requests)
	}
	return r.Requests, nil
}
