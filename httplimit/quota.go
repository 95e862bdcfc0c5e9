package httplimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/sluicehq/sluice/answer"
)

// asksQuota reports whether a request is for [Config].QuotaPath.
func (d *door) asksQuota(r *http.Request) bool {
	return d.config.QuotaPath != "" && d.engine != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.EscapedPath() == d.config.QuotaPath
}

// encodeQuota encodes the remaining quota of the client. If the query is invalid, it encodes a denial instead, and
// returns the fault as a sentence.
func (d *door) encodeQuota(c *call, client answer.Client) (fault string) {
	if fault = c.describeQuota(); fault != "" {
		d.encoder.Malformed(&c.answer, c.w.Header(), fault, client)
		return fault
	}
	c.describe()
	c.decision = d.engine.Quota(c.r.Context(), &c.request)
	d.outage.Note(&c.decision)
	d.encoder.Quota(&c.answer, c.w.Header(), &c.decision, client)
	return ""
}

// describeQuota fills in the method and the path from the query. It returns the fault of the query as a sentence,
// or "".
func (c *call) describeQuota() (fault string) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	path := query.Get("path")
	switch {
	case err != nil || len(query["path"]) > 1 || len(query["method"]) > 1:
		return "The query may have one path and one method."
	case path != "" && !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#"):
		return "The path must begin with a slash, and have no query."
	}
	c.request.Method, c.request.Path, c.request.RawQuery = query.Get("method"), path, ""
	return ""
}
