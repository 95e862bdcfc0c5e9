package telemetry

import (
	"context"
	"time"
)

// Board is the place where instances post their counts for each other, such as a shared Redis. It must be safe for
// concurrent use.
type Board interface {
	// Post replaces the post of an instance in a part. A part is a separate set of posts; there are only a few
	// parts. The post expires after the time expires.
	Post(ctx context.Context, part, instance string, post []byte, expires time.Duration) error
	// Posted returns the posts of all instances in a part, by the names of the instances.
	Posted(ctx context.Context, part string) (map[string][]byte, error)
}

// Parts of the board.
const (
	nowPart      = "now"      // the last minutes
	historyPart  = "history"  // all series
	subjectsPart = "subjects" // the subjects with the most refusals and requests
	costsPart    = "costs"    // costs of responses
	loadsPart    = "loads"    // automatic limits of requests under way
)
