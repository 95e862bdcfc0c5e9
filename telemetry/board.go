package telemetry

import (
	"context"
	"time"
)

// Board is the place where instances post their counts for each other, such as a shared Redis. It must be safe for
// concurrent use.
type Board interface {
	// Post stores a post of an instance for the duration keepFor. The post replaces the previous post of the instance
	// in the same part. A part is a set of posts, with at most one post of each instance. There are only a few parts.
	Post(ctx context.Context, part, instance string, post []byte, keepFor time.Duration) error
	// Posted returns the posts of all instances in a part, by the names of the instances.
	Posted(ctx context.Context, part string) (map[string][]byte, error)
}

// Parts of the board.
const (
	nowPart      = "now"      // the last minutes
	historyPart  = "history"  // all series
	subjectsPart = "subjects" // the subjects with the most denials and requests
	costsPart    = "costs"    // costs of responses
	loadsPart    = "loads"    // limits of rules with "in_flight: auto"
)
