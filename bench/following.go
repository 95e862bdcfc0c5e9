package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// stored is a contender with a database that has a number of rules and overrides. It changes one rule or one
// override.
type stored struct {
	postgres         bool
	rules, overrides int
	change           func(tx *source.Tx, n int) error
}

const (
	followedRules     = "growth: following a change of a rule"
	followedOverrides = "growth: following a change of an override"
	// followedChanges is the number of changes, one after the other. Their median is the result.
	followedChanges = 5
)

func followWorks() []work {
	about := "One instance changes %s in a database, and another, in the same process, follows: the time from the acknowledgement of the change until it is in force in the other instance, the time of the change itself (it is written, checked together with all rules, and committed), the CPU time of both without PostgreSQL, and the time of the first import"
	cols := []string{"followed ms", "change ms", "CPU ms", "import s"}
	return []work{
		{followedRules, fmt.Sprintf(about, "one of this number of rules"), storedSizes("rules", []int{10, 1000, 10_000}, func(n int) stored { return stored{rules: n, change: changeRule} }), followed, cols},
		{followedOverrides, fmt.Sprintf(about, "an override, with ten rules and this number of other overrides,"), storedSizes("overrides", []int{0, 1000, 100_000}, func(n int) stored { return stored{rules: 10, overrides: n, change: changeOverride} }), followed, cols},
	}
}

func storedSizes(what string, sizes []int, of func(n int) stored) (all []contender) {
	for _, postgres := range []bool{false, true} {
		for _, n := range sizes {
			s, name := of(n), "SQLite"
			if s.postgres = postgres; postgres {
				name = "PostgreSQL"
			}
			all = append(all, contender{fmt.Sprintf("%s, %s: %d", name, what, n), ours, s})
		}
	}
	return all
}

func ruleOf(i int, limit string) policy.Rule {
	return policy.Rule{Name: fmt.Sprintf("rule-%d", i), Match: []string{fmt.Sprintf("GET /reports/%d", i)}, Key: []string{"api_key"}, Limit: limit}
}

func overrideOf(i int, limit string) policy.Override {
	return policy.Override{Rule: "rule-0", Key: map[string]string{"api_key": fmt.Sprint(i)}, Limit: limit}
}

func changeRule(tx *source.Tx, n int) error {
	_, err := tx.PutRule(source.RuleRow{Rule: ruleOf(3, fmt.Sprintf("%d/minute", 10+n))}, source.Any)
	return err
}

func changeOverride(tx *source.Tx, n int) error {
	_, err := tx.PutOverride(source.OverrideRow{Override: overrideOf(3, fmt.Sprintf("%d/minute", 10+n))}, source.Any)
	return err
}

// instance has a database of rules and an engine that follows it.
type instance struct {
	db     *source.Database
	engine *policy.Engine
	stack  *source.Stack
}

func newInstance(url string) (*instance, error) {
	db, err := source.Open(url, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	engine := policy.NewEngine(memory.New(), nil)
	i := &instance{db, engine, &source.Stack{Swap: engine.Swap}}
	db.Check = i.stack.Check
	_, err = db.Migrate(context.Background())
	return i, err
}

// read puts the present contents of the database into force.
func (i *instance) read(ctx context.Context) error {
	c, err := i.db.Read(ctx)
	if err != nil {
		return err
	}
	return i.stack.Contents(c)
}

// followed measures the time until a change is in force in another instance.
func followed(c contender) (sample, error) {
	s, bed := c.start.(stored), &testbed{}
	defer bed.clean()
	writer, err := newInstance(bed.database(s.postgres))
	if err != nil {
		return nil, err
	}
	reader, err := newInstance(bed.url)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	begin := time.Now()
	if _, err := writer.db.Change(ctx, "bench", func(tx *source.Tx) error { return tx.Replace(s.document()) }); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	if err := errors.Join(writer.read(ctx), reader.read(ctx)); err != nil {
		return nil, err
	}
	out, err := s.follow(ctx, writer, reader)
	if err == nil {
		out["import s"] = took.Seconds()
	}
	return out, err
}

func (s stored) document() *policy.Document {
	doc := &policy.Document{}
	for i := range s.rules {
		doc.Rules = append(doc.Rules, ruleOf(i, "5/minute"))
	}
	for i := range s.overrides {
		doc.Overrides = append(doc.Overrides, overrideOf(i, "5/minute"))
	}
	return doc
}

// follow makes changes by one instance, and waits for each to be in force in the other.
func (s stored) follow(ctx context.Context, writer, reader *instance) (sample, error) {
	type arrival struct {
		version int64
		at      time.Time
		err     error
	}
	arrivals := make(chan arrival, followedChanges)
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reader.db.Watch(watching, func(c *source.Contents) {
			err := reader.stack.Contents(c)
			select {
			case arrivals <- arrival{c.Version, time.Now(), err}:
			case <-watching.Done():
			}
		})
	}()
	defer func() { stop(); <-ended }()
	var lags, changes, costs []float64
	for n := range followedChanges {
		used, begin := cpu(), time.Now()
		version, err := writer.db.Change(ctx, "bench", func(tx *source.Tx) error { return s.change(tx, n) })
		done := time.Now()
		if err == nil {
			err = writer.stack.Contents(writer.db.Known())
		}
		if err != nil {
			return nil, err
		}
		for a := (arrival{}); a.version < version; {
			select {
			case <-ctx.Done():
				return nil, errors.New("the other instance does not follow a change")
			case a = <-arrivals:
			}
			if a.err != nil {
				return nil, a.err
			}
			if a.version >= version {
				lags = append(lags, max(0, milliseconds(a.at.Sub(done))))
			}
		}
		changes, costs = append(changes, milliseconds(done.Sub(begin))), append(costs, milliseconds(cpu()-used))
	}
	return sample{"followed ms": median(lags), "change ms": median(changes), "CPU ms": median(costs)}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(v []float64) float64 {
	mid, _ := middle(slices.Clone(v))
	return mid
}

// testbed has servers that run while a contender is measured. It takes the place of the test that [postgrestest]
// expects.
type testbed struct {
	testing.TB
	url   string
	after []func()
}

func (m *testbed) Helper()                      {}
func (m *testbed) Cleanup(f func())             { m.after = append(m.after, f) }
func (m *testbed) Fatal(args ...any)            { must(errors.New(fmt.Sprint(args...))) }
func (m *testbed) Fatalf(f string, args ...any) { must(fmt.Errorf(f, args...)) }

func (m *testbed) clean() {
	for _, f := range slices.Backward(m.after) {
		f()
	}
}

// database returns the URL of an empty database.
func (m *testbed) database(postgres bool) string {
	if postgres {
		m.url = postgrestest.Start(m).Database()
		return m.url
	}
	dir, err := os.MkdirTemp("", "bench")
	must(err)
	m.Cleanup(func() { os.RemoveAll(dir) })
	m.url = "sqlite:" + filepath.Join(dir, "rules.db")
	return m.url
}
