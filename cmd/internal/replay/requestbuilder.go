package replay

import (
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/policy"
)

// RequestBuilder makes requests from log entries in the same way as [Run], for callers that decide about the requests
// themselves. It must be used by one goroutine at a time.
type RequestBuilder struct{ requests *requests }

// NewRequestBuilder returns a RequestBuilder that makes requests for the policy of a document.
func NewRequestBuilder(doc *policy.Document) *RequestBuilder {
	return &RequestBuilder{newRequests(doc)}
}

// Build returns the request of an entry, and the name of the client if the log has a name in place of its address. The
// request is valid until the next call.
func (b *RequestBuilder) Build(e *accesslog.Entry) (r *policy.Request, name string) {
	peer, named := peerOf(e)
	if named {
		name = text(e.Client)
	}
	return b.requests.build(e, peer), name
}

// Unjudged returns the rules of a document for which the logs do not contain enough data.
func Unjudged(doc policy.Document, files []feed.File) []NotJudged {
	_, out := judgeable(doc, files)
	return out
}
