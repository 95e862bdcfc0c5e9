package httplimit

import (
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/answer"
)

// Keep wraps a reverse proxy so that clients see what the doors in front of it say about limits:
// [net/http/httputil.ReverseProxy] adds the fields of the upstream's response to those already there,
// and drops the latter when the upstream sends an informational response such as 103.
//
//	handler := httplimit.Policy(engine)(httplimit.Keep(proxy))
//
// The RateLimit and X-RateLimit fields of the upstream are replaced where a door has
// said something, and pass where none has, for example where no rule applied. The
// handler gets at Flush, Hijack and the deadlines by [http.ResponseController].
func Keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := &keeper{ResponseWriter: w}
		if !k.keep(w.Header()) {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(k, r)
		k.restore()
	})
}

// keeper is a ResponseWriter that puts back what doors have said.
type keeper struct {
	http.ResponseWriter
	values [len(answer.StateFields)][]string
	done   bool
}

// keep notes what doors have said, and reports whether that is anything.
func (k *keeper) keep(h http.Header) (any bool) {
	for i, name := range answer.StateFields {
		k.values[i] = h[name]
		any = any || k.values[i] != nil
	}
	return any
}

// Unwrap is for http.ResponseController.
func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k *keeper) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		k.clear() // The final response tells.
	} else {
		k.restore()
	}
	k.ResponseWriter.WriteHeader(status)
}

func (k *keeper) Write(p []byte) (int, error) {
	k.restore()
	return k.ResponseWriter.Write(p)
}

// FlushError sends the header, if that has not been done.
func (k *keeper) FlushError() error {
	k.restore()
	return http.NewResponseController(k.ResponseWriter).Flush()
}

// restore sets the fields, once: later changes are trailers.
func (k *keeper) restore() {
	if k.done {
		return
	}
	k.done = true
	h := k.Header()
	for i, name := range answer.StateFields {
		switch now, kept := h[name], k.values[i]; {
		case slices.Equal(now, kept): // as nearly always, and to write is dear
		case kept == nil:
			delete(h, name)
		default:
			h[name] = kept
		}
	}
}

func (k *keeper) clear() {
	for _, name := range answer.StateFields {
		delete(k.Header(), name)
	}
}
