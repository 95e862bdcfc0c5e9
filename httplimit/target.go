package httplimit

import (
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// misaimed returns the fault of the target of a request as a sentence, or "". Rules use the path and the host, so
// neither may be in doubt. An http.Server accepts more than origin-form (/path), absolute-form (http://host/path)
// and the "*" of OPTIONS: it turns "a:http://host/path" into a URL without a path, which a proxy passes on.
func misaimed(r *http.Request) string {
	u := r.URL
	switch {
	case r.Method == http.MethodConnect:
		return "This is not a forward proxy, and CONNECT is not supported."
	case r.RequestURI == "*" && r.Method != http.MethodOptions:
		return `The target "*" is for OPTIONS only.`
	case !policy.PlainHost(r.Host):
		return "The Host must be a name or an address, with an optional port."
	case strings.IndexByte(r.RequestURI, '#') >= 0:
		return "The request target must not have a fragment." // some servers end the path at "#"
	case u.Scheme == "" && u.Host == "" && u.Opaque == "" && u.User == nil:
		return ""
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "The request target must be a path, or an http or https URL with a host."
	case u.User != nil:
		return "The request target must not have a user."
	case r.ProtoMajor > 1:
		return "The request target must be a path." // the :authority may be another host
	}
	return ""
}
