package replay

import (
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/policy"
)

// Asked makes the requests that [Run] sends to a policy, for other callers of one. It is for one goroutine.
type Asked struct{ requests *requests }

// NewAsked returns what makes the requests for the policy of a document.
func NewAsked(doc *policy.Document) *Asked { return &Asked{newRequests(doc)} }

// Of returns the request that an entry tells of, which is good until the next one, and the name of the client
// if the log has that in place of its address.
func (a *Asked) Of(e *accesslog.Entry) (r *policy.Request, name string) {
	peer, named := peerOf(e)
	if named {
		name = text(e.Client)
	}
	return a.requests.of(e, peer), name
}

// Untold returns the rules of a document that the logs tell too little for.
func Untold(doc policy.Document, files []feed.File) []NotJudged {
	_, out := judgeable(doc, files)
	return out
}
