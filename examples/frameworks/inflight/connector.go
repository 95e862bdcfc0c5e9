package inflight

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/sluicehq/sluice"
)

// Connector holds a permit of Places for each open connection to a database, so all instances of a program together
// stay below the server's limit of connections. A call that needs a further connection waits until a permit is free
// or its context ends.
//
//	db := sql.OpenDB(&inflight.Connector{Connector: connector, Places: places, Name: "orders"})
//	db.SetConnMaxIdleTime(time.Second) // an idle connection holds its permit
type Connector struct {
	driver.Connector
	Places *sluice.Semaphore
	Name   string // the name of the database: the key of its permits
}

// Connect opens a connection, and holds a permit until the connection is closed.
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
		_ = opened.Close() // the connection is unused
		release()
		return nil, fmt.Errorf("the driver of %s does not support contexts: %T", c.Name, opened)
	}
	return &conn{m, release}, nil
}

// modern has the optional interfaces that database/sql uses, and that the connections of all current drivers
// implement.
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

// CheckNamedValue lets the driver check the value, if the driver supports this.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.modern.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// IsValid lets the driver report whether the connection is still usable, if the driver supports this.
func (c *conn) IsValid() bool {
	v, ok := c.modern.(driver.Validator)
	return !ok || v.IsValid()
}
