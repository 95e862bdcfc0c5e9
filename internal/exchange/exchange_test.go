package exchange

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// adder is a layer that adds n to each status, and keeps a response back if the sum is 999.
type adder struct {
	own   Exchange
	n     int
	seen  []int
	taken string
}

func (a *adder) Head(status int) int {
	a.seen = append(a.seen, status)
	if status+a.n == 999 {
		return 0
	}
	return status + a.n
}

func (a *adder) Take(body []byte) { a.taken += string(body) }

func around(layers ...*adder) (*Exchange, *writer) {
	w := &writer{ResponseRecorder: httptest.NewRecorder()}
	var inner http.ResponseWriter = w
	for _, l := range layers {
		inner = Join(inner, httptest.NewRequest("GET", "/", nil), &l.own, l)
	}
	return inner.(*Exchange), w
}

// However many layers there are, they share one writer around the server's writer, and the innermost layer sees a
// response first.
func TestLayers(t *testing.T) {
	outer, inner := &adder{n: 1}, &adder{n: 10}
	x, w := around(outer, inner)
	if x.Unwrap() != http.ResponseWriter(w) || x != &outer.own {
		t.Error("there is more than one writer")
	}
	x.WriteHeader(103)
	x.WriteHeader(300)
	x.WriteHeader(500) // too late for the layers
	if got := fmt.Sprint(inner.seen, outer.seen, w.heads); got != "[103 300] [113 310] [114 311 500]" {
		t.Error(got)
	}
	outer, inner = &adder{n: 1}, &adder{n: 10}
	x, w = around(outer, inner)
	x.Leave(&inner.own)
	x.Leave(&outer.own)
	_, _ = io.WriteString(x, "things")
	if got := fmt.Sprint(inner.seen, outer.seen, w.heads, w.Body); got != "[] [200] [201] things" {
		t.Error(got)
	}
}

// A layer that keeps back the head gets the body.
func TestTake(t *testing.T) {
	outer, inner := &adder{n: 1}, &adder{n: 99}
	x, w := around(outer, inner)
	x.WriteHeader(900)
	_, _ = x.Write([]byte("a"))
	_, _ = x.WriteString("b")
	_, err := x.ReadFrom(strings.NewReader("c"))
	if x.Flush(); err != nil || inner.taken != "abc" || outer.seen != nil || w.Flushed || w.Body.Len() > 0 {
		t.Errorf("%v: the layer got %q, the outer one %v, the client %q", err, inner.taken, outer.seen, w.Body)
	}
}

// A handler that sets no status sends the default.
func TestDefault(t *testing.T) {
	for _, write := range []func(*Exchange){
		(*Exchange).Begin, (*Exchange).Flush,
		func(x *Exchange) { _, _ = x.Write(nil) },
		func(x *Exchange) { _, _ = x.WriteString("things") },
	} {
		x, w := around(&adder{n: 1})
		x.Default = 429
		if write(x); w.Code != 430 {
			t.Error(w.Code)
		}
	}
}

// The last byte of a body of known length is written separately, however the body is written.
func TestLastByte(t *testing.T) {
	for name, write := range map[string]func(*Exchange) (int64, error){
		"Write":       func(x *Exchange) (int64, error) { n, err := x.Write([]byte("things")); return int64(n), err },
		"WriteString": func(x *Exchange) (int64, error) { n, err := x.WriteString("things"); return int64(n), err },
		"ReadFrom":    func(x *Exchange) (int64, error) { return x.ReadFrom(strings.NewReader("things")) },
		"two": func(x *Exchange) (int64, error) {
			n, _ := x.ReadFrom(strings.NewReader("thi"))
			more, err := x.ReadFrom(strings.NewReader("ngs"))
			return n + more, err
		},
	} {
		writes := &writer{ResponseRecorder: httptest.NewRecorder()}
		x := Join(writes, nil, new(Exchange), nil)
		x.Length = 6
		n, err := write(x)
		last := writes.all[len(writes.all)-1]
		if err != nil || n != 6 || x.Bytes != 6 || last != "s" || strings.Join(writes.all, "") != "things" {
			t.Errorf("%s: %d bytes, %d counted, %v, in %q", name, n, x.Bytes, err, writes.all)
		}
	}
}

type writer struct {
	*httptest.ResponseRecorder
	heads []int
	all   []string
}

func (w *writer) WriteHeader(status int) {
	w.heads = append(w.heads, status)
	w.ResponseRecorder.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.all = append(w.all, string(p))
	return w.ResponseRecorder.Write(p)
}

// A watcher reads the buffered bytes at a flush if the buffer is at least half full, when more bytes do not fit in the
// buffer, and before the layer leaves.
func TestWatchersReadWhatIsSent(t *testing.T) {
	own := new(Exchange)
	x := Join(&writer{ResponseRecorder: httptest.NewRecorder()}, nil, own, nil)
	var read, same strings.Builder
	x.Watch(&read)
	x.Watch(&same)
	long := strings.Repeat("x", 5<<10)
	for _, step := range []struct {
		write, want string
		flush       bool
	}{
		{"a", "", false}, {"b", "", true}, {long[:3000], "", false}, {"", "ab" + long[:3000], true},
		{long[:2000], "ab" + long[:3000], false}, {long[:2500], "ab" + long[:5000], false}, {long, "ab" + long[:5000] + long[:2500] + long, false},
		{"c", "ab" + long[:5000] + long[:2500] + long, true},
	} {
		if _, err := x.Write([]byte(step.write)); err != nil {
			t.Fatal(err)
		}
		if step.flush {
			x.Flush()
		}
		if read.String() != step.want {
			t.Errorf("after %.5q: %d bytes are read, want %d", step.write, read.Len(), len(step.want))
		}
	}
	x.Leave(own)
	if want := "ab" + long[:5000] + long[:2500] + long + "c"; read.String() != want || same.String() != want {
		t.Errorf("%d and %d bytes are read, want %d", read.Len(), same.Len(), len(want))
	}
}
