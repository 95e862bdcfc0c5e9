package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// work is a task that every contender does. A contender runs in a separate process, once in each round, so that the
// garbage of one does not slow another down.
type work struct {
	name       string
	about      string
	contenders []contender
	// measure runs a contender and returns the cost. It fails if the contender has not done the work.
	measure func(c contender) (sample, error)
	columns []string // the columns of the sample to report; the first one decides
}

type role string

const (
	ours  role = "ours"
	rival role = "rival"
	floor role = "floor"
	other role = "other" // ours, but only for comparison
)

type contender struct {
	name  string
	role  role
	start any // a value that the work's measure understands
}

// sample has the cost of one run of a contender, by column.
type sample map[string]float64

// result has the samples of all rounds of a contender.
type result struct {
	contender
	work    string
	samples []sample // by round; nil if the round failed
	err     error
}

// median returns the median of a column, and half the distance between its quartiles.
func (r result) median(column string) (mid, spread float64) {
	var v []float64
	for _, s := range r.samples {
		if x, ok := s[column]; ok {
			v = append(v, x)
		}
	}
	return middle(v)
}

func (r result) measured() bool {
	return slices.ContainsFunc(r.samples, func(s sample) bool { return s != nil })
}

// middle returns the median, and half the distance between the quartiles.
func middle(v []float64) (mid, spread float64) {
	if len(v) == 0 {
		return 0, 0
	}
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2, (v[n*3/4] - v[n/4]) / 2
}

// run measures the works round by round, in child processes. From the fourth round on, it starts a round only if
// the round should end within the given time.
func run(s setting, works []work, rounds int, within time.Duration) []result {
	var all []result
	for _, w := range works {
		for _, c := range w.contenders {
			all = append(all, result{contender: c, work: w.name})
		}
	}
	start := time.Now()
	order := rand.New(rand.NewPCG(5, 6)) // the same order in each run
	for round := range rounds {
		spent := time.Since(start)
		if round >= 3 && spent+spent/time.Duration(round) > within {
			break
		}
		rest := all
		for _, w := range works {
			n := len(w.contenders)
			for _, i := range order.Perm(n) {
				rest[i].add(s, round)
			}
			rest = rest[n:]
		}
	}
	return all
}

// add runs the contender once more, and adds the sample.
func (r *result) add(s setting, round int) {
	sample, err := child(s, r.work, r.name)
	if err != nil {
		r.err = err
		fmt.Fprintf(os.Stderr, "round %d, %s, %s: %v\n", round+1, r.work, r.name, err)
	} else {
		fmt.Fprintf(os.Stderr, "round %d, %s, %s: %v\n", round+1, r.work, r.name, sample)
	}
	r.samples = append(r.samples, sample)
}

// patience is how long a contender may run. It usually needs a few seconds.
const patience = 2 * time.Minute

// child measures one contender in a separate process.
func child(s setting, work, contender string) (taken sample, err error) {
	out, err := output(patience, os.Args[0], fmt.Sprintf("-quick=%t", s.quick), "-profile", s.profile, "-child", work, contender)
	if err != nil {
		return nil, err
	}
	return taken, json.Unmarshal(out, &taken)
}

// output runs a command and returns its output. If the command takes too long, output kills it and all processes
// that it has started.
func output(atMost time.Duration, name ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, name[0], name[1:]...)
	var said bytes.Buffer
	cmd.Stderr = io.MultiWriter(os.Stderr, &said)
	cmd.SysProcAttr = withParent()
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	switch why, _, _ := strings.Cut(said.String(), "\n"); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the command had not ended after %v, and was killed", atMost)
	case err != nil:
		return nil, fmt.Errorf("%s (%w)", why, err)
	}
	return out, nil
}

// withParent makes a process end when its parent process ends, even if the parent is killed.
func withParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// childMain is the main function of the process that child starts.
func childMain(s setting, work, contender string) error {
	for _, w := range slices.Concat(varyingWorks(s), steadyWorks()) {
		for _, c := range w.contenders {
			if w.name == work && c.name == contender {
				taken, err := profiled(s, w, c)
				if err != nil {
					return err
				}
				return json.NewEncoder(os.Stdout).Encode(taken)
			}
		}
	}
	return fmt.Errorf("the work %[2]q has no contender %[1]q", contender, work)
}

func profiled(s setting, w work, c contender) (sample, error) {
	if s.profile == "" {
		return w.measure(c)
	}
	name := regexp.MustCompile(`\W+`).ReplaceAllString(w.name+" "+c.name, "-")
	f, err := os.Create(filepath.Join(s.profile, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	taken, err := w.measure(c)
	pprof.StopCPUProfile()
	return taken, errors.Join(err, f.Close())
}

// byRole returns the results of a role, the best of the column first.
func byRole(results []result, of role, column string) []result {
	some := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.role != of || !r.measured() })
	slices.SortStableFunc(some, func(a, b result) int {
		x, _ := a.median(column)
		y, _ := b.median(column)
		if column == "per second" {
			x, y = y, x
		}
		return cmp.Compare(x, y)
	})
	return some
}
