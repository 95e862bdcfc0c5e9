package httplimit

import (
	"maps"
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/exchange"
)

// Keep wraps a reverse proxy so that clients see the limits of the middleware in front of it. Without Keep,
// [net/http/httputil.ReverseProxy] adds the fields of the upstream's response to the middleware's fields. It also
// loses the middleware's fields if the upstream sends an informational response such as 103.
//
//	handler := httplimit.Policy(engine)(httplimit.Keep(proxy))
//
// If the middleware has set RateLimit or X-RateLimit fields, these replace the fields of the upstream. Otherwise,
// for example because no rule applied, the fields of the upstream pass. Fields of language model APIs, such as
// x-ratelimit-remaining-tokens, are handled in the same way. The handler can flush, hijack and set deadlines
// through an [http.ResponseController].
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

// keeper saves the fields of the middleware, and restores them in the final response.
type keeper struct {
	own    exchange.Exchange
	header http.Header
	values [len(answer.StateFields)][]string
	llm    map[string][]string // fields of language model APIs; may be nil
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

// Head restores the fields before the final response is sent, and removes them from informational responses.
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

// restore sets the fields, only once: later changes of the header are trailers.
func (k *keeper) restore() {
	if k.done {
		return
	}
	k.done = true
	for i, name := range answer.StateFields {
		switch now, kept := k.header[name], k.values[i]; {
		case slices.Equal(now, kept): // the usual case; writing to the map is expensive
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
