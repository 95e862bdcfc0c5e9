package inflight

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/sluicehq/sluice"
)

// Connector opens no more connections to a database at once than Places has permits: all instances of a program
// together stay below the limit of the server. A call that needs one more waits until its context ends.
//
//	db := sql.OpenDB(&inflight.Connector{Connector: connector, Places: places, Name: "orders"})
//	db.SetConnMaxIdleTime(time.Second) // an idle connection holds its permit
type Connector struct {
	driver.Connector
	Places *sluice.Semaphore
	Name   string // of the database
}

// Connect holds a place until the connection is closed.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	release, err := c.Places.Wait(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		release()
		return nil, err
	}
	m, ok := opened.(modern)
	if !ok {
		_ = opened.Close() // nothing was done by it
		release()
		return nil, fmt.Errorf("the driver of %s knows no contexts: %T", c.Name, opened)
	}
	return &conn{m, release}, nil
}

// modern is what database/sql asks connections for one by one, and drivers of today have.
type modern interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type conn struct {
	modern
	release func()
}

func (c *conn) Close() error {
	defer c.release()
	return c.modern.Close()
}

// CheckNamedValue leaves it to the driver which values it takes.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.modern.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// IsValid leaves it to the driver whether the connection is still good.
func (c *conn) IsValid() bool {
	v, ok := c.modern.(driver.Validator)
	return !ok || v.IsValid()
}
