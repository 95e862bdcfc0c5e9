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

	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
)

// A body of up to MaxBody bytes is accepted, however many reads it takes.
func TestBodySizes(t *testing.T) {
	a := open(t, oneRule)
	body := func(n int) string {
		return oneCheck + strings.Repeat(" ", n-len(oneCheck))
	}
	for _, n := range []int{100, 511, 512, 513, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, checkapi.MaxBody} {
		if w := post(a, strings.NewReader(body(n))); w.Code != 200 {
			t.Errorf("%d bytes: %d %s", n, w.Code, w.Body)
		}
		if w := post(a, iotest.OneByteReader(strings.NewReader(body(min(n, 2000))))); w.Code != 200 {
			t.Errorf("byte by byte: %d %s", w.Code, w.Body)
		}
	}
	if w := post(a, strings.NewReader(body(checkapi.MaxBody+1))); w.Code != 413 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w := post(a, io.MultiReader(strings.NewReader(body(checkapi.MaxBody+1)))) // unknown length
	if w.Code != 413 || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// oneRule is a policy, and oneCheck is a check under its rule.
const (
	oneRule  = "rules: [{name: per-key, key: [api_key], limit: 100/day}]"
	oneCheck = `{"rule": "per-key", "key": {"api_key": "k"}}`
)

func post(h http.Handler, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	postTo(h, w, body)
	return w
}

func postTo(h http.Handler, w http.ResponseWriter, body io.Reader) {
	h.ServeHTTP(w, newRequest("/v1/peek", body))
}

func newRequest(path string, body io.Reader) *http.Request {
	r := httptest.NewRequest("POST", path, body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// Only a few large bodies are in memory at a time, and small ones do not wait for them. A large body that waits for too
// long gets 503 with Retry-After.
func TestLargeBodiesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, oneRule)
		large := func() (chan *httptest.ResponseRecorder, *io.PipeWriter) {
			in, out := io.Pipe()
			answer := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				answer <- post(h, in)
				in.Close()
			}()
			go func() { _, _ = io.WriteString(out, strings.Repeat(" ", 200<<10)) }()
			synctest.Wait()
			return answer, out
		}
		var all []*io.PipeWriter
		for range checkapi.MaxLarge {
			_, out := large()
			all = append(all, out)
		}
		waiting, out := large()
		if w := post(h, strings.NewReader(oneCheck)); w.Code != 200 {
			t.Errorf("a small body behind large ones: %d", w.Code)
		}
		all[0].Close()
		synctest.Wait() // now the waiting body is read
		late, _ := large()
		time.Sleep(time.Minute)
		if w := <-late; w.Code != 503 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("a large body that waited for a minute: %d %v", w.Code, w.Header())
		}
		_, _ = io.WriteString(out, oneCheck)
		out.Close()
		if w := <-waiting; w.Code != 200 {
			t.Errorf("a large body after its wait: %d", w.Code)
		}
		for _, out := range all {
			out.Close()
		}
	})
}

// Answers to large batches are large, too. Only a few are in memory until clients have read them.
func TestLargeBatchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, oneRule)
		list := func(checks int) io.Reader {
			return strings.NewReader(`{"checks": [` + strings.Repeat(oneCheck+",", checks-1) + oneCheck + `]}`)
		}
		read := make(chan struct{})
		for range checkapi.MaxLarge {
			go postTo(h, unread{httptest.NewRecorder(), read}, list(checkapi.SmallBatch+1))
		}
		synctest.Wait()
		if small := post(h, list(checkapi.SmallBatch)); small.Code != 200 {
			t.Errorf("a small batch behind large ones: %d", small.Code)
		}
		if large := post(h, list(checkapi.SmallBatch+1)); large.Code != 503 || large.Header().Get("Retry-After") != "1" {
			t.Errorf("a large batch while the others' answers are unread: %d", large.Code)
		}
		close(read)
		synctest.Wait()
		if again := post(h, list(checkapi.SmallBatch+1)); again.Code != 200 {
			t.Errorf("a large batch after the others' answers were read: %d", again.Code)
		}
	})
}

// unread is a response that the client does not read until read is closed.
type unread struct {
	http.ResponseWriter
	read chan struct{}
}

func (u unread) Write(p []byte) (int, error) {
	<-u.read
	return u.ResponseWriter.Write(p)
}
