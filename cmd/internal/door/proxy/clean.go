package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/clientip"
	"github.com/sluicehq/sluice/internal/exchange"
)

// Clean changes each request to the form that the upstream gets, and passes it to next, the handler that decides. So
// decisions are about the requests that the upstream gets.
//
//   - Fields that change the path, the method or the host are dropped, except those of u.Keep. X-Forwarded-Prefix and
//     similar fields pass only if a trusted proxy sends them, even if u.Keep names them.
//   - Fields whose names have characters other than letters, digits and hyphens are dropped, except those of u.Keep,
//     because CGI and similar interfaces do not distinguish such characters from a hyphen.
//   - Upgrades are dropped, except the upgrade to a WebSocket. Any other upgrade would open a tunnel for requests that
//     are not counted.
//   - A request without a host gets the host of the upstream's URL, unless the upstream uses https.
//   - The fields that are listed in Connection are dropped, as in package httplimit.
//   - HTTP/2 requests that could be read in two ways are answered with 400, because HTTP/2 can express requests that
//     HTTP/1 cannot, and net/http accepts some of them.
//
// Clean expects requests from a [Server].
func Clean(u Upstream, next http.Handler) http.Handler {
	c := &cleaner{Upstream: u, dropped: make(map[string]bool), kept: make(map[string]bool)}
	for _, name := range slices.Concat(hopFields, pathFields) {
		c.dropped[http.CanonicalHeaderKey(name)] = true
	}
	for _, name := range u.Keep {
		c.kept[http.CanonicalHeaderKey(name)] = true
		delete(c.dropped, http.CanonicalHeaderKey(name))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			if p := malformed(r); p != nil {
				p.write(w)
				return
			}
		}
		own := exchanges.Get().(*exchange.Exchange)
		x := exchange.Join(w, r, own, nil)
		c.identify(x, r)
		c.clean(x, r)
		next.ServeHTTP(x, r)
		if !x.Passed {
			*own = exchange.Exchange{}
			exchanges.Put(own)
		}
	})
}

// exchanges has exchanges for reuse. The exchange of a request that is not passed to the upstream can be reused,
// because nothing keeps a reference to it.
var exchanges = sync.Pool{New: func() any { return new(exchange.Exchange) }}

// hopFields are not passed on. HTTP2-Settings belongs to the upgrade to HTTP/2, which is never passed on.
var hopFields = []string{"HTTP2-Settings", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection"}

// Some frameworks use pathFields in place of the request's own path, method or host.
var pathFields = []string{
	"X-Original-URL", "X-Original-URI", "X-Original-Method", "X-Original-Host", "X-Rewrite-URL",
	"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-HTTP-Host-Override", "X-Host", "X-Script-Name",
}

// proxyFields have the same effect as pathFields, but some proxies set them. They are dropped unless they come from
// a trusted proxy.
var proxyFields = []string{
	"X-Forwarded-Prefix", "X-Forwarded-Path", "X-Forwarded-Uri", "X-Forwarded-Url", "X-Forwarded-Method", "X-Forwarded-Server",
	"X-Forwarded-Script-Name",
}

// PathFields returns the names of fields that some servers use in place of the path, the method or the host. [Clean]
// drops them, with the exceptions that it describes. The examples in deploy/ make proxies drop the same fields.
func PathFields() []string { return slices.Concat(pathFields, proxyFields) }

// CheckKeep returns an error for a field that is not forwarded even if [Upstream].Keep names it.
func CheckKeep(name string) error {
	canonical := http.CanonicalHeaderKey(name)
	is := func(other string) bool { return http.CanonicalHeaderKey(other) == canonical }
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("%q is not the name of a header field: separate names by commas, without spaces", name)
	case slices.ContainsFunc(proxyFields, is) || slices.ContainsFunc(forwardedFields[:], is):
		return fmt.Errorf("%s is forwarded only from trusted proxies: remove it here, and list the proxy in the policy's trusted_proxies", canonical)
	case slices.ContainsFunc(hopFields, is) || slices.ContainsFunc(connectionFields, is):
		return fmt.Errorf("%s is never forwarded: remove it", canonical)
	}
	return nil
}

// connectionFields are fields that httputil.ReverseProxy removes or writes itself.
var connectionFields = []string{"Connection", "Forwarded", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// keyFields are fields that decisions read only from the head of a request. They are removed from trailers.
var keyFields = []string{
	"Authorization", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Cookie", "Forwarded",
	"Host", "Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Origin", "X-Api-Key", "X-Real-Ip",
}

type cleaner struct {
	Upstream
	dropped, kept map[string]bool // canonical names
}

// identify finds the address of the client, which both the limits and the upstream use.
func (u *Upstream) identify(x *exchange.Exchange, r *http.Request) {
	trusted := u.Trusted()
	x.Peer = httplimit.ClientIP{}.Addr(r)
	x.Trusted = clientip.Contains(trusted, x.Peer)
	x.Client = clientip.Resolve(x.Peer, r.Header, trusted, "")
}

func (c *cleaner) clean(x *exchange.Exchange, r *http.Request) {
	h := r.Header
	for name := range h {
		if c.drops(name, x.Trusted) {
			delete(h, name)
		}
	}
	if h["Upgrade"] != nil && !asksForWebSocket(r) {
		delete(h, "Upgrade")
	}
	if body, ok := r.Body.(*clientBody); ok && r.Trailer != nil {
		body.ended = func() { c.cleanTrailer(r) }
		c.cleanTrailer(r)
	}
	if r.Host == "" && c.URL != nil && c.URL.Scheme != "https" {
		r.Host = c.URL.Host
	}
	x.Cleaned, x.Fault = true, exchange.DropNominated(h, "")
}

func (c *cleaner) drops(name string, trusted bool) bool {
	return c.dropped[name] || !plainName(name) && !c.kept[name] ||
		strings.HasPrefix(name, "X-Forwarded-") && slices.Contains(proxyFields, name) && !trusted
}

// plainName reports whether every server reads a field's name as the same name.
func plainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '-' && ('0' > c || c > '9') && ('a' > c|0x20 || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// cleanTrailer removes trailers with the names of fields that decisions use, because some servers merge
// trailers into the header.
func (c *cleaner) cleanTrailer(r *http.Request) {
	for name := range r.Trailer {
		if c.dropped[name] || name == "" || !plainName(name) || strings.HasPrefix(name, "X-Forwarded-") ||
			slices.Contains(keyFields, name) || c.Reads != nil && c.Reads(name) {
			delete(r.Trailer, name)
		}
	}
}

// asksForWebSocket reports whether r is the opening handshake of RFC 6455.
func asksForWebSocket(r *http.Request) bool {
	upgrade := r.Header["Upgrade"]
	return len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") &&
		r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && r.ContentLength == 0 &&
		len(r.Header["Sec-Websocket-Key"]) == 1
}

// climbs reports whether a server that unescapes the path up to three times may find a segment ".." in it. Such a
// segment could lead out of the path of the upstream's URL.
func climbs(path string) bool {
	for range 4 {
		for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
			if segment, _, _ = strings.Cut(segment, ";"); segment == ".." {
				return true
			}
		}
		path = dotEscapes.Replace(path)
	}
	return false
}

var dotEscapes = strings.NewReplacer("%2e", ".", "%2E", ".", "%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`,
	"%3b", ";", "%3B", ";", "%25", "%")
