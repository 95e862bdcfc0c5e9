package source

import (
	"context"
	"reflect"
	"sync"
	"time"
)

// Status is the state of following a database.
type Status struct {
	// Unavailable reports whether the database failed to answer the last query of Watch.
	Unavailable bool
	// Failures is the number of queries of Watch that the database did not answer.
	Failures uint64
	// Asked is the time at which the database last answered Watch, or zero if it has not answered yet.
	Asked time.Time
	// Version is the version of the contents that were last passed to apply or returned by Read, or 0 before the
	// first.
	Version int64
}

// Status returns the state of Watch.
func (d *Database) Status() Status {
	d.following.Lock()
	s := d.status
	d.following.Unlock()
	if c := d.handed.Load(); c != nil {
		s.Version = c.Version
	}
	return s
}

// Watch calls the function apply with the new contents after every change. It returns when ctx ends. At the start,
// it calls the function if the contents differ from the result of Read.
//
// Watch notices a change when PostgreSQL reports it by NOTIFY, and otherwise within 500 ms, or within 100 ms in an
// SQLite file. While the database is unavailable, Watch does not call the function. Afterwards it reads everything
// again, because the server may have lost its last changes.
func (d *Database) Watch(ctx context.Context, apply func(*Contents)) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { d.dialect.follow(ctx, d.read, d.wake, func() { d.doubt.Store(true) }) })
	tick := time.NewTicker(d.poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if c := d.look(ctx); c != nil {
			apply(c)
		}
		select {
		case <-ctx.Done():
		case <-d.wakes:
		case <-tick.C:
		}
	}
}

// wake makes Watch check for changes at once.
func (d *Database) wake() {
	select {
	case d.wakes <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// look returns the contents of the database, or nil if they equal the last result of Read or Watch.
func (d *Database) look(ctx context.Context) *Contents {
	doubt := d.doubt.Swap(false)
	old := d.handed.Load()
	c, err := d.newer(ctx, old, doubt)
	if err != nil {
		d.doubt.Store(true)
		if ctx.Err() == nil {
			d.notAnswered(err)
		}
		return nil
	}
	d.answered()
	if c == nil || c == old || old != nil && c.versions == old.versions && reflect.DeepEqual(c, old) {
		return nil
	}
	d.handed.Store(c)
	return c
}

// newer returns the contents of the database if they are newer than the contents old. If the parameter doubt is
// true, it reads everything.
func (d *Database) newer(ctx context.Context, old *Contents, doubt bool) (*Contents, error) {
	if doubt || old == nil {
		return d.again(ctx)
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	v, err := d.versions(looking, d.read, "")
	switch known := d.known.Load(); {
	case err != nil:
		return nil, d.unavailable(err)
	case v == old.versions:
		return nil, nil
	case known != nil && known.versions == v:
		return known, nil // this instance has made the change
	}
	return d.latest(ctx, old)
}

// again reads everything, and replaces the known contents. Meanwhile, this instance may commit a change that is missing
// from the contents that were read. If so, the read is repeated until no such change has come in between.
func (d *Database) again(ctx context.Context) (c *Contents, err error) {
	for {
		old := d.known.Load()
		if c, err = d.snapshot(ctx, c); err != nil {
			return nil, err
		}
		if old != nil {
			c.lineage = old.lineage
			if !reflect.DeepEqual(c, old) {
				c.lineage++
			}
		}
		if d.known.CompareAndSwap(old, c) {
			return c, nil
		}
	}
}

func (d *Database) notAnswered(err error) {
	d.following.Lock()
	defer d.following.Unlock()
	d.status.Failures++
	if !d.status.Unavailable {
		d.status.Unavailable = true
		d.log.Error("the rules database is unavailable, the last policy stays in force", "database", d.name, "error", err)
	}
}

func (d *Database) answered() {
	d.following.Lock()
	defer d.following.Unlock()
	d.status.Asked = time.Now()
	if d.status.Unavailable {
		d.status.Unavailable = false
		d.log.Info("the rules database is available again", "database", d.name)
	}
}
