package checkapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// A body of any length, read in any pieces, is one body, up to the largest.
func TestBodySizes(t *testing.T) {
	s := start(t, testRules, nil)
	body := func(n int) string {
		const head, tail = `{"rule": "per-key", "key": {"api_key": "k"}}`, " "
		return head + strings.Repeat(tail, n-len(head))
	}
	for _, n := range []int{100, 511, 512, 513, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, checkapi.MaxBody} {
		s.do("POST", "/v1/peek", body(n)).want(200)
		r := httptest.NewRequest("POST", "/v1/peek", iotest.OneByteReader(strings.NewReader(body(min(n, 2000)))))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		checkapi.Handler(checkapi.Config{Engine: s.engine}).ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("byte by byte: %d %s", w.Code, w.Body)
		}
	}
	s.do("POST", "/v1/peek", body(checkapi.MaxBody+1)).want(413)
	r := httptest.NewRequest("POST", "/v1/peek", io.MultiReader(strings.NewReader(body(checkapi.MaxBody+1)))) // of no known length
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	checkapi.Handler(checkapi.Config{Engine: s.engine}).ServeHTTP(w, r)
	if w.Code != 413 || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// Large bodies are in memory a few at a time, and small ones do not wait for them.
func TestLargeBodiesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := checkapi.Handler(checkapi.Config{Engine: policy.NewEngine(memory.New(), compile(t, testRules))})
		post := func(body io.Reader) chan int {
			status := make(chan int, 1)
			go func() {
				r := httptest.NewRequest("POST", "/v1/peek", body)
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				status <- w.Code
			}()
			return status
		}
		large := func() (chan int, *io.PipeWriter) {
			in, out := io.Pipe()
			status := post(in)
			go func() { _, _ = io.WriteString(out, strings.Repeat(" ", 200<<10)) }()
			return status, out
		}
		var all []*io.PipeWriter
		for range checkapi.MaxLarge {
			_, out := large()
			all = append(all, out)
		}
		synctest.Wait()
		waiting, out := large()
		synctest.Wait()
		if status := <-post(strings.NewReader(`{"rule": "per-key", "key": {"api_key": "k"}}`)); status != 200 {
			t.Errorf("a small body behind large ones: %d", status)
		}
		all[0].Close()
		synctest.Wait() // now the one that waited is read
		_, _ = io.WriteString(out, `{"rule": "per-key", "key": {"api_key": "k"}}`)
		out.Close()
		if status := <-waiting; status != 200 {
			t.Errorf("a large body whose turn has come: %d", status)
		}
		for _, out := range all {
			out.Close()
		}
	})
}

// Who waits for too long is told to come back.
func TestLargeBodiesDoNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := checkapi.Handler(checkapi.Config{Engine: policy.NewEngine(memory.New(), compile(t, testRules))})
		var all []*io.PipeWriter
		var last *httptest.ResponseRecorder
		for range checkapi.MaxLarge + 1 {
			in, out := io.Pipe()
			all = append(all, out)
			last = httptest.NewRecorder()
			go func(w *httptest.ResponseRecorder) {
				r := httptest.NewRequest("POST", "/v1/peek", in)
				r.Header.Set("Content-Type", "application/json")
				h.ServeHTTP(w, r)
				in.Close()
			}(last)
			go func() { _, _ = io.WriteString(out, strings.Repeat(" ", 200<<10)) }()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if last.Code != 503 || last.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %v", last.Code, last.Header())
		}
		for _, out := range all {
			out.Close()
		}
	})
}

// Answers to large batches, which are as long, have to be read before there are more of them.
func TestLargeBatchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := checkapi.Handler(checkapi.Config{Engine: policy.NewEngine(memory.New(), compile(t, testRules))})
		post := func(checks int, w http.ResponseWriter) {
			one := `{"rule": "per-key", "key": {"api_key": "k"}}`
			r := httptest.NewRequest("POST", "/v1/peek", strings.NewReader(`{"checks": [`+strings.Repeat(one+",", checks-1)+one+`]}`))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(w, r)
		}
		read := make(chan struct{})
		for range checkapi.MaxLarge {
			go post(checkapi.SmallBatch+1, unread{httptest.NewRecorder(), read})
		}
		synctest.Wait()
		small, large := httptest.NewRecorder(), httptest.NewRecorder()
		if post(checkapi.SmallBatch, small); small.Code != 200 {
			t.Errorf("a small batch behind large ones: %d", small.Code)
		}
		if post(checkapi.SmallBatch+1, large); large.Code != 503 || large.Header().Get("Retry-After") != "1" {
			t.Errorf("a large one while nobody reads the others: %d", large.Code)
		}
		close(read)
		synctest.Wait()
		again := httptest.NewRecorder()
		if post(checkapi.SmallBatch+1, again); again.Code != 200 {
			t.Errorf("a large one behind those that were read: %d", again.Code)
		}
	})
}

// unread is an answer that nobody reads yet.
type unread struct {
	http.ResponseWriter
	read chan struct{}
}

func (u unread) Write(p []byte) (int, error) {
	<-u.read
	return u.ResponseWriter.Write(p)
}
