package source

import (
	"context"
	"reflect"
	"sync"
	"time"
)

// Status tells how following a database is going.
type Status struct {
	// Away reports whether the database did not answer when it was last asked by Watch.
	Away bool
	// Failures counts how often it did not.
	Failures uint64
	// Asked is when it last answered Watch; zero if it never has.
	Asked time.Time
	// Version is that of the contents that were last handed out; 0 if none were.
	Version int64
}

// Status returns how following is going.
func (d *Database) Status() Status {
	d.following.Lock()
	s := d.status
	d.following.Unlock()
	if c := d.handed.Load(); c != nil {
		s.Version = c.Version
	}
	return s
}

// Watch calls apply with the new contents whenever something has changed, until ctx ends, and
// returns then. It looks once at once, and hands out what is not what Read has returned.
//
// A change by whatever way is noticed as soon as PostgreSQL tells of it by NOTIFY, and within 500 ms if
// it does not, or within 100 ms in a file of SQLite. While the database
// is away nothing happens; when it is there again, everything is read again, since a server may
// have come back without its last changes.
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

// wake makes Watch look at once.
func (d *Database) wake() {
	select {
	case d.wakes <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// look returns the contents if they are not those that were handed out last.
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

// newer returns the contents of the database if they are newer than old. In doubt it reads all.
func (d *Database) newer(ctx context.Context, old *Contents, doubt bool) (*Contents, error) {
	if doubt || old == nil {
		return d.again(ctx)
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	v, err := d.versions(looking, d.read, "")
	switch known := d.known.Load(); {
	case err != nil:
		return nil, d.away(err)
	case v == old.versions:
		return nil, nil
	case known != nil && known.versions == v:
		return known, nil // a change of this instance
	}
	return d.latest(ctx, old)
}

// again reads everything, and forgets what was known. What has been changed here meanwhile is known
// already, and may not be in what was read: then it reads what has changed since, and looks again.
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
	if !d.status.Away {
		d.status.Away = true
		d.log.Error("the rules database is unavailable, the last policy stays in force", "database", d.name, "error", err)
	}
}

func (d *Database) answered() {
	d.following.Lock()
	defer d.following.Unlock()
	d.status.Asked = time.Now()
	if d.status.Away {
		d.status.Away = false
		d.log.Info("the rules database is available again", "database", d.name)
	}
}
