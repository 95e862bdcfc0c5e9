package httplimit

import (
	"maps"
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/exchange"
)

// Keep wraps a reverse proxy so that clients see the limits of the middleware in front of it:
// [net/http/httputil.ReverseProxy] adds the fields of the upstream's response to those already set, and drops the
// latter when the upstream sends an informational response such as 103.
//
//	handler := httplimit.Policy(engine)(httplimit.Keep(proxy))
//
// The RateLimit and X-RateLimit fields of the upstream are replaced if the middleware has set any, and pass
// otherwise, for example if no rule applied. The same holds for the fields of the APIs of language models, such as
// x-ratelimit-remaining-tokens. The handler reaches Flush, Hijack and the deadlines by [http.ResponseController].
func Keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := &keeper{header: w.Header()}
		if !k.keep() {
			next.ServeHTTP(w, r)
			return
		}
		x := exchange.Join(w, r, &k.own, k)
		defer x.Leave(&k.own)
		next.ServeHTTP(x, r)
		k.restore()
	})
}

// keeper restores the fields of the middleware.
type keeper struct {
	own    exchange.Exchange
	header http.Header
	values [len(answer.StateFields)][]string
	llm    map[string][]string // fields of the APIs of language models; may be nil
	done   bool
}

// keep saves the fields of the middleware, and reports whether any is set.
func (k *keeper) keep() (any bool) {
	for i, name := range answer.StateFields {
		k.values[i] = k.header[name]
		any = any || k.values[i] != nil
	}
	for name, values := range k.header {
		if answer.IsLLMField(name) {
			if k.llm == nil {
				k.llm = make(map[string][]string)
			}
			k.llm[name], any = values, true
		}
	}
	return any
}

// Head puts it into the final response.
func (k *keeper) Head(status int) int {
	if exchange.Final(status) {
		k.restore()
		return status
	}
	for _, name := range answer.StateFields {
		delete(k.header, name)
	}
	for name := range k.llm {
		delete(k.header, name)
	}
	return status
}

// restore sets the fields, once: later changes are trailers.
func (k *keeper) restore() {
	if k.done {
		return
	}
	k.done = true
	for i, name := range answer.StateFields {
		switch now, kept := k.header[name], k.values[i]; {
		case slices.Equal(now, kept): // as nearly always, and to write is expensive
		case kept == nil:
			delete(k.header, name)
		default:
			k.header[name] = kept
		}
	}
	if k.llm != nil {
		maps.DeleteFunc(k.header, func(name string, _ []string) bool { return answer.IsLLMField(name) })
		maps.Copy(k.header, k.llm)
	}
}
