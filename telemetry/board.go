package telemetry

import (
	"context"
	"time"
)

// Board is where instances leave what they have seen for each other, such as a Redis that they
// share.
type Board interface {
	// Post leaves a part of what this instance has to say in place of what it said before, for a
	// while. There are a few parts.
	Post(ctx context.Context, part, instance string, said []byte, expires time.Duration) error
	// Posted returns a part of what all instances have said.
	Posted(ctx context.Context, part string) (map[string][]byte, error)
}

// parts of what an instance says.
const (
	nowPart      = "now"      // the last minutes
	historyPart  = "history"  // all that it has
	subjectsPart = "subjects" // who is refused, and who asks most
)
