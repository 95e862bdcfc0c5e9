package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/replay"
	"github.com/sluicehq/sluice/internal/replay/accesslog"
	"github.com/sluicehq/sluice/internal/replay/fleet"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/policy"
)

// fleetFlags describe a fleet that counts otherwise than one store would.
type fleetFlags struct {
	nodes  int
	alone  bool
	sync   time.Duration
	outage string
}

func (q *fleetFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&q.nodes, "nodes", 0, "show beside it what a fleet of `N` instances would let pass. If the policy has rules with \"consistency: leased\", they share a store and lease from it; else each counts for itself, unless --sync or --store-outage is given")
	f.BoolVar(&q.alone, "alone", false, "with --nodes: each counts for itself, whatever rules are leased")
	f.DurationVar(&q.sync, "sync", 0, "with --nodes: they tell each other what they let pass every so often, such as 100ms")
	f.StringVar(&q.outage, "store-outage", "", "with --nodes: they share a store, which is away in this `time` of every day, such as 12:00-12:05, or once, as in 2026-11-20T12:00/2026-11-20T12:05; each rule's on_error decides then. Rules with \"consistency: leased\" are leased while the store is there")
}

// fleetNames are the flags of a fleet.
var fleetNames = []string{"nodes", "alone", "sync", "store-outage"}

const maxNodes = 1000

// add has the requests put to the fleet as well.
func (q *fleetFlags) add(f *pflag.FlagSet, c *replay.Config) error {
	switch {
	case !slices.ContainsFunc(fleetNames, f.Changed):
		return nil
	case q.nodes < 2 || q.nodes > maxNodes:
		return fmt.Errorf("--nodes: how many instances are there? Give 2 to %d", maxNodes)
	case f.Changed("sync") && q.sync < time.Millisecond:
		return errors.New("--sync: give a millisecond or more, such as 100ms")
	case q.alone && (q.sync > 0 || f.Changed("store-outage")):
		return errors.New("--alone: instances that count each for itself tell nobody and have no store: leave --sync and --store-outage out")
	case c.Against != nil:
		return errors.New("--nodes: a fleet and --against are two questions: ask one at a time")
	}
	var away func(now int64) bool
	if f.Changed("store-outage") {
		var err error
		if away, err = parseOutage(q.outage, c.Feed.Parse); err != nil {
			return err
		}
	}
	c.Fleet = func(judged *policy.Document) replay.Fleet { return q.fleet(judged, away) }
	return nil
}

// fleet says how the rules are counted that the log tells enough for.
func (q *fleetFlags) fleet(judged *policy.Document, away func(now int64) bool) replay.Fleet {
	leases := !q.alone && q.sync == 0 && slices.ContainsFunc(judged.Rules, func(r policy.Rule) bool { return r.Consistency == sluice.Leased.String() })
	config := fleet.Config{Nodes: q.nodes, Sync: q.sync, Alone: !leases && q.sync == 0 && away == nil, Away: away}
	out := replay.Fleet{Undivided: leases}
	if leases {
		config.Lease = func(shared fleet.Shared) fleet.Leaser { return lease.NewPlayback(shared) }
	}
	switch {
	case leases && away != nil:
		out.Name = fmt.Sprintf("%d instances that lease from a store they share, which is away, %s", q.nodes, q.outage)
	case leases:
		out.Name = fmt.Sprintf("%d instances that lease from a store they share", q.nodes)
	case q.sync > 0 && away != nil:
		out.Name = fmt.Sprintf("%d instances that tell each other every %v, but for %s", q.nodes, q.sync, q.outage)
	case q.sync > 0:
		out.Name = fmt.Sprintf("%d instances that tell each other every %v", q.nodes, q.sync)
	case away != nil:
		out.Name = fmt.Sprintf("%d instances whose store is away, %s", q.nodes, q.outage)
	default:
		out.Name = fmt.Sprintf("%d instances that count each for itself", q.nodes)
	}
	out.NewStore = func(maxBytes int64) replay.Store {
		return fleet.New(config, func() replay.Store { return newReplayStore(max(1<<20, maxBytes/int64(q.nodes+2))) })
	}
	return out
}

// parseOutage reads "12:00-12:05", of every day, or "2026-11-20T12:00/2026-11-20T12:05".
func parseOutage(text string, o accesslog.Options) (away func(now int64) bool, err error) {
	wrong := fmt.Errorf("--store-outage %.60q: write two times of the day, as in 12:00-12:05, or two moments, as in 2026-11-20T12:00/2026-11-20T12:05", text)
	zone := o.Zone
	if zone == nil {
		zone = time.UTC
	}
	if from, to, once := strings.Cut(text, "/"); once {
		a, errA := parseMoment(from, zone)
		b, errB := parseMoment(to, zone)
		if errA != nil || errB != nil || !a.Before(b) {
			return nil, wrong
		}
		return func(now int64) bool { return a.UnixMicro() <= now && now < b.UnixMicro() }, nil
	}
	from, to, both := strings.Cut(text, "-")
	a, errA := parseClock(from)
	b, errB := parseClock(to)
	if !both || errA != nil || errB != nil || a == b {
		return nil, wrong
	}
	return func(now int64) bool {
		t := time.UnixMicro(now).In(zone)
		at := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
		if a < b {
			return a <= at && at < b
		}
		return at >= a || at < b // over midnight
	}, nil
}

func parseMoment(s string, zone *time.Location) (t time.Time, err error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if t, err = time.ParseInLocation(layout, s, zone); err == nil {
			return t, nil
		}
	}
	return t, err
}

func parseClock(s string) (time.Duration, error) {
	t, err := time.Parse("15:04:05", s)
	if err != nil {
		t, err = time.Parse("15:04", s)
	}
	return t.Sub(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)), err
}
