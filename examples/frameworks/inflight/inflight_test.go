package inflight_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/examples/frameworks/inflight"
	"github.com/sluicehq/sluice/memory"
)

// most counts how many are inside at once.
type most struct{ now, most, all atomic.Int64 }

func (m *most) enter() {
	n := m.now.Add(1)
	m.all.Add(1)
	for old := m.most.Load(); n > old && !m.most.CompareAndSwap(old, n); old = m.most.Load() {
	}
}

func (m *most) leave() { m.now.Add(-1) }

func places(n int64) *sluice.Semaphore {
	s, err := sluice.NewSemaphore(memory.New(), "example", n)
	if err != nil {
		panic(err)
	}
	return s
}

// A client that never has more than two requests in flight.
func ExampleTransport() {
	var served most
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.enter()
		defer served.leave()
		time.Sleep(20 * time.Millisecond)
		_, _ = io.WriteString(w, "done")
	}))
	defer server.Close()
	client := &http.Client{Transport: &inflight.Transport{Base: http.DefaultTransport, Places: places(2)}}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			resp, err := client.Get(server.URL)
			if err != nil {
				fmt.Println(err)
				return
			}
			defer resp.Body.Close()
			_, _ = io.ReadAll(resp.Body)
		})
	}
	all.Wait()
	fmt.Println(served.all.Load(), "requests, at most", served.most.Load(), "at once")
	// Output: 10 requests, at most 2 at once
}

// The permit of a request is held until the body of its response is closed, and is released at once if the request
// fails.
func TestTransport(t *testing.T) {
	hang := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-hang
	}))
	defer server.Close()
	defer close(hang)
	p := places(1)
	client := &http.Client{Transport: &inflight.Transport{Base: http.DefaultTransport, Places: p}}
	if _, err := client.Get("http://127.0.0.1:1/"); err == nil {
		t.Fatal("premise: a server listens on port 1")
	}
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	host := resp.Request.URL.Host
	for _, c := range []struct {
		host string
		want int64
	}{{"127.0.0.1:1", 1}, {host, 0}} {
		if d, err := p.Peek(t.Context(), c.host); err != nil || d.Remaining != c.want {
			t.Errorf("%s: %+v, %v, want %d", c.host, d, err, c.want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
	if _, err := client.Do(r); ctx.Err() == nil || err == nil {
		t.Errorf("a second request was sent: %v", err)
	}
	resp.Body.Close()
	if d, err := p.Peek(t.Context(), host); err != nil || d.Remaining != 1 {
		t.Errorf("after the body is closed: %+v, %v", d, err)
	}
}

// counted counts the open connections.
type counted struct {
	name string
	open *most
}

func (c *counted) Driver() driver.Driver { return &sqlite.Driver{} }

func (c *counted) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(c.name)
	if err != nil {
		return nil, err
	}
	c.open.enter()
	return &countedConn{conn.(sqliteConn), c.open}, nil
}

type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type countedConn struct {
	sqliteConn
	open *most
}

func (c *countedConn) Close() error {
	defer c.open.leave()
	return c.sqliteConn.Close()
}

// Two instances of a program never have more than three connections open together.
func TestConnector(t *testing.T) {
	c := &counted{filepath.Join(t.TempDir(), "example.db") + "?_pragma=busy_timeout(60000)", new(most)}
	p := places(3)
	var all sync.WaitGroup
	for range 2 {
		db := sql.OpenDB(&inflight.Connector{Connector: c, Places: p, Name: "orders"})
		db.SetMaxIdleConns(1)
		db.SetConnMaxIdleTime(10 * time.Millisecond)
		defer db.Close()
		for i := range 20 {
			all.Go(func() {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				if err := tx.QueryRowContext(t.Context(), "SELECT ? + 1", i).Scan(&n); err != nil || n != i+1 {
					t.Errorf("%d, %v", n, err)
				}
				time.Sleep(5 * time.Millisecond)
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if got := c.open.most.Load(); got != 3 {
		t.Errorf("%d connections were open at once, want 3", got)
	}
}
