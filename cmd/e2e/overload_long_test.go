//go:build long

package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	overloadWorkers = 8
	overloadWork    = 100 * time.Millisecond // eight workers answer 80 requests a second
	overloadBears   = 80.0
)

const (
	auto    = "in_flight: auto"
	watches = "in_flight: auto, shadow: true"
	off     = "in_flight: 65536" // more than the test sends
)

// overloadLasts returns the length of each part of the test.
func overloadLasts() time.Duration { return sized(10*time.Second, 40*time.Second) }

// shares returns the rates by class: critical, normal and sheddable. A class without requests is left out.
func shares(c, n, s float64) map[string]float64 {
	rates := map[string]float64{critical: c, normal: n, sheddable: s}
	for class, rate := range rates {
		if rate == 0 {
			delete(rates, class)
		}
	}
	return rates
}

var (
	threeTimes  = shares(0.4*overloadBears, 1.3*overloadBears, 1.3*overloadBears)
	twelveTimes = shares(0.3*overloadBears, 0.4*overloadBears, 12*overloadBears)
)

func sleeps() { time.Sleep(overloadWork) }

// burns takes a fixed amount of computation, about 10 ms of a processor.
func burns() {
	var sum [sha256.Size]byte
	for range 50_000 {
		sum = sha256.Sum256(sum[:])
	}
}

// overloaded is an upstream with gateways in front of it.
type overloaded struct {
	upstream *factory
	url      string
	gateways []atomic.Pointer[gateway]
	args     []string
	next     atomic.Int64
}

func newOverloaded(t *testing.T, capacity string, gateways, workers int, works func()) *overloaded {
	o := &overloaded{gateways: make([]atomic.Pointer[gateway], gateways)}
	o.upstream, o.url = newFactory(t, workers, works)
	o.args = []string{"--policy", overloadPolicy(t, capacity), "--upstream", o.url}
	for i := range o.gateways {
		o.gateways[i].Store(serve(t, o.args...))
	}
	return o
}

// target returns the URL of each gateway in turn.
func (o *overloaded) target() string {
	return o.gateways[int(o.next.Add(1))%len(o.gateways)].Load().URL
}

// load sends requests for a time, and calls the events at equal intervals.
func (o *overloaded) load(t *testing.T, rates map[string]float64, lasts time.Duration, events ...func()) *openLoop {
	c := &openLoop{rates: rates, urls: o.target}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		for _, event := range events {
			select {
			case <-time.After(lasts / time.Duration(len(events)+1)):
				event()
			case <-ctx.Done():
			}
		}
	})
	c.run(t, lasts)
	cancel()
	all.Wait()
	for _, f := range c.fates {
		if f.wrong != "" && len(events) == 0 {
			t.Error(f.wrong)
			break
		}
	}
	return c
}

// TestLongOverload prints a table of the results of a real gateway in front of an upstream, which usually has eight
// workers of 100 ms each. The clients give up after a second.
func TestLongOverload(t *testing.T) {
	timed(t)
	lasts := overloadLasts()
	rows := []string{overloadHead}
	row := func(name string, c *openLoop, from, until time.Duration) {
		line := overloadRow(name, c, from, until)
		t.Log(line)
		rows = append(rows, line)
	}
	want := func(problem string) {
		if long && problem != "" {
			t.Error(problem)
		}
	}
	settled := lasts / 4

	t.Run("calm", func(t *testing.T) {
		c := newOverloaded(t, auto, 1, overloadWorkers, sleeps).load(t, shares(0.2*overloadBears, 0.25*overloadBears, 0.25*overloadBears), lasts)
		row("70 %", c, 0, lasts)
		want(criticalBelow(c, 100, 0, lasts))
	})
	for _, of := range []struct {
		name  string
		rates map[string]float64
	}{{"3 × all", threeTimes}, {"12 × sheddable", twelveTimes}} {
		t.Run(of.name, func(t *testing.T) {
			row(of.name+", no limit", newOverloaded(t, off, 1, overloadWorkers, sleeps).load(t, of.rates, lasts), 0, lasts)
			row(of.name+", `shadow: true`", newOverloaded(t, watches, 1, overloadWorkers, sleeps).load(t, of.rates, lasts), 0, lasts)
			c := newOverloaded(t, auto, 1, overloadWorkers, sleeps).load(t, of.rates, lasts)
			row(of.name+", `in_flight: auto`, the first quarter", c, 0, settled)
			row(of.name+", `in_flight: auto`, afterwards", c, settled, lasts)
			want(criticalBelow(c, 99.5, settled, lasts))
			if all := c.sums("", settled, lasts); all.served*10 < int(overloadBears*(lasts-settled).Seconds()*9) {
				want(fmt.Sprintf("%s: %d were served in %v", of.name, all.served, lasts-settled))
			}
		})
	}
	t.Run("restart", func(t *testing.T) {
		o := newOverloaded(t, auto, 1, overloadWorkers, sleeps)
		var restarted time.Duration
		began := time.Now()
		c := o.load(t, threeTimes, 2*lasts, func() {
			o.gateways[0].Load().Signal(syscall.SIGKILL)
			o.gateways[0].Load().Wait()
			o.gateways[0].Store(serve(t, o.args...))
			restarted = time.Since(began)
		})
		row("3 × all, before the gateway is killed and started again", c, 0, lasts)
		row("3 × all, afterwards", c, restarted, 2*lasts)
		want(criticalBelow(c, 95, restarted, 2*lasts))
	})
	t.Run("workers", func(t *testing.T) {
		o := newOverloaded(t, auto, 1, overloadWorkers, sleeps)
		c := o.load(t, shares(0.3*overloadBears, 0.6*overloadBears, 0.6*overloadBears), 3*lasts,
			func() { o.upstream.dismiss(overloadWorkers / 2) }, func() { o.upstream.hire(overloadWorkers / 2) })
		row("1.5 × all", c, 0, lasts)
		row("half of the workers are taken away", c, lasts, 2*lasts)
		row("they are back", c, 2*lasts, 3*lasts)
		want(criticalBelow(c, 97, lasts, 2*lasts))
		want(criticalBelow(c, 99, 2*lasts, 3*lasts))
	})
	t.Run("two gateways", func(t *testing.T) {
		c := newOverloaded(t, auto, 2, overloadWorkers, sleeps).load(t, threeTimes, 2*lasts)
		row("3 × all over two gateways, the first half", c, 0, lasts)
		row("3 × all over two gateways, afterwards", c, lasts, 2*lasts)
		want(criticalBelow(c, 99, lasts, 2*lasts))
	})
	t.Run("burning", func(t *testing.T) {
		began := time.Now()
		for range 20 {
			burns()
		}
		bears := 20 / time.Since(began).Seconds()
		for _, capacity := range []string{off, auto} {
			c := newOverloaded(t, capacity, 1, 1, burns).load(t, shares(0.3*bears, 1.3*bears, 1.4*bears), lasts)
			row(fmt.Sprintf("3 × %.0f a second that burn a processor, `%s`", bears, strings.Replace(capacity, off, "no limit", 1)), c, 0, lasts)
			if capacity == auto {
				want(criticalBelow(c, 90, settled, lasts))
			}
		}
	})
	t.Log("\n" + strings.Join(rows, "\n"))
}

func (f *factory) dismiss(n int) {
	for range n {
		<-f.workers
	}
}

// quantile returns a quantile of the latencies, given in thousandths. It is 0 without any.
func (s *sums) quantile(q int) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	return s.took[(len(s.took)-1)*q/1000]
}

// overloadRow returns the sums of a period as a row of the table.
func overloadRow(name string, c *openLoop, from, until time.Duration) string {
	line := fmt.Sprintf("| %s |", name)
	all := c.sums("", from, until)
	for _, class := range []string{critical, normal, sheddable} {
		if s := c.sums(class, from, until); s.sent > 0 {
			line += fmt.Sprintf(" %.1f |", s.percent())
		} else {
			line += " – |"
		}
	}
	seconds := (until - from).Seconds()
	return line + fmt.Sprintf(" %.0f | %.0f | %.0f | %v | %v |", float64(all.served)/seconds, float64(all.shed)/seconds, float64(all.late)/seconds,
		all.quantile(500).Round(time.Millisecond), all.quantile(990).Round(time.Millisecond))
}

const overloadHead = "| | critical, % | normal, % | sheddable, % | served a second | denied a second | given up a second | median | p99 |\n|---|---|---|---|---|---|---|---|---|"

// criticalBelow returns a problem if less than a percentage of the critical requests of a period was served, or "".
func criticalBelow(c *openLoop, least float64, from, until time.Duration) string {
	if s := c.sums(critical, from, until); s.sent > 0 && s.percent() < least {
		return fmt.Sprintf("%.2f %% of %d critical requests were served, want %.2f %%", s.percent(), s.sent, least)
	}
	return ""
}
