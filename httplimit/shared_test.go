package httplimit

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
)

// Responses share memory. Whatever a handler does to the fields of one response, those of the others do not change.
func TestValuesAreNotShared(t *testing.T) {
	t.Parallel()
	limited := func(fields *sync.Map) http.Handler {
		limiter := policytest.Limiter(t, memory.New(), "2/hour")
		return Limit(limiter, func(r *http.Request) string { return r.Host })(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fields.Store(r, copied(w.Header()))
			for name, values := range w.Header() {
				w.Header()[name] = append(values, "mine")
				values[0] = "mine"
			}
		}))
	}
	var fields sync.Map
	h := limited(&fields)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var sinks []*sink
			var first []http.Header
			for i := range 300 {
				r := benchRequest()
				r.Host = fmt.Sprint(g, ".", i/3) // two are allowed, and the third is denied
				w := serveOnce(h, r)
				before, passed := fields.Load(r)
				if passed != (i%3 < 2) {
					t.Errorf("request %d of a client: allowed is %v", i%3, passed)
					return
				}
				if !passed {
					before = copied(w.header)
				}
				sinks, first = append(sinks, w), append(first, before.(http.Header))
			}
			for i, w := range sinks {
				remaining := fmt.Sprint(max(0, 1-i%3))
				if got := first[i]["X-Ratelimit-Remaining"]; len(got) != 1 || got[0] != remaining {
					t.Errorf("response %d has %q, want %s", i, got, remaining)
				}
				if i%3 == 2 && !reflect.DeepEqual(w.header, first[i]) {
					t.Errorf("response %d has %v, and had %v", i, w.header, first[i])
				}
				for name, values := range w.header {
					if i%3 < 2 && !slices.Equal(values, []string{"mine", "mine"}) && !slices.Equal(values, []string{first[i].Get(name), "mine"}) {
						t.Errorf("response %d, %s: %q", i, name, values)
					}
				}
			}
		})
	}
	wg.Wait()
}

// copied returns a deep copy of h.
func copied(h http.Header) http.Header {
	c := maps.Clone(h)
	for name, values := range c {
		c[name] = nil
		for _, v := range values {
			c[name] = append(c[name], strings.Clone(v))
		}
	}
	return c
}
