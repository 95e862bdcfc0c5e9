package replay

import (
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/policy"
)

// Asked makes requests from log entries in the same way as [Run], for callers that decide about the requests
// themselves. It must be used by one goroutine at a time.
type Asked struct{ requests *requests }

// NewAsked returns an Asked that makes requests for the policy of a document.
func NewAsked(doc *policy.Document) *Asked { return &Asked{newRequests(doc)} }

// Of returns the request of an entry, and the name of the client if the log has a name in place of its address. The
// request is valid until the next call.
func (a *Asked) Of(e *accesslog.Entry) (r *policy.Request, name string) {
	peer, named := peerOf(e)
	if named {
		name = text(e.Client)
	}
	return a.requests.of(e, peer), name
}

// Untold returns the rules of a document for which the logs do not contain enough data.
func Untold(doc policy.Document, files []feed.File) []NotJudged {
	_, out := judgeable(doc, files)
	return out
}
