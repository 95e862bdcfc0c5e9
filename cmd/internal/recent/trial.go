package recent

import (
	"context"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/policy"
)

// Trial is what a change of the policy would have done to the requests that are kept.
type Trial struct {
	From     time.Time `json:"from,omitzero"` // the first request
	To       time.Time `json:"to,omitzero"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"` // really
	// Before and After are how many of them the policy in force and the changed one refuse, both from empty counters.
	Before int64 `json:"refused_before"`
	After  int64 `json:"refused_after"`
	Change
	// Most is about the most that the change does to the requests as they were decided, from empty or from full counters
	// of the changed rules: real counters may be older than the records. It is equal to Change if they are not older. It
	// is no strict bound, because requests that compete for a limit can change places.
	Most Change `json:"at_most"`
	// Differs is how many requests the policy in force decides otherwise than they were decided: because real counters
	// are older than what is kept, or the policy has changed since.
	Differs   int64              `json:"decided_otherwise"`
	Rules     []RuleTrial        `json:"rules"`    // with refusals by either policy
	Subjects  []SubjectTrial     `json:"subjects"` // with the most changes
	NotJudged []replay.NotJudged `json:"not_judged"`
	Notes     []string           `json:"notes"`     // sentences
	Instances int                `json:"instances"` // whose requests these are
}

// Change is how many requests are decided otherwise after a change.
type Change struct {
	Newly int64 `json:"newly_refused"`
	Freed int64 `json:"no_longer_refused"`
}

// RuleTrial is what the change does under one rule to requests with limits from one place.
type RuleTrial struct {
	Rule string `json:"rule"`
	// From is the place: "rule", "tier:pro", "override" or "block".
	From string `json:"limits_from"`
	// Before and After are how many requests the rule refuses, or as a shadow would refuse.
	Before int64 `json:"refused_before"`
	After  int64 `json:"refused_after"`
	// Change counts requests that any rule refuses by only one of the policies, where this rule is one that does.
	Change
}

// SubjectTrial is what the change does to one subject of a rule.
type SubjectTrial struct {
	Rule    string `json:"rule"`
	Subject string `json:"subject"` // as people may see it
	Change
}

const (
	// MostAge is how old the requests are at most that a trial tries.
	MostAge = time.Hour
	// maxTime is how long one replay of a trial takes at most. It ends early then.
	maxTime = 10 * time.Second
	// maxPasses bounds the replays that leave out more rules than the one before.
	maxPasses = 1
	// storeBytes is what the counters of one policy take at most during a trial.
	storeBytes = 32 << 20
)

// Try returns what a change from one policy to another would have done in the last hour. One trial runs at a time, and
// others wait.
func (r *Ring) Try(ctx context.Context, before, after *policy.Document) (*Trial, error) {
	select {
	case r.trying <- struct{}{}:
		defer func() { <-r.trying }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	chunks := r.chunks()
	t := &trial{ring: r, chunks: chunks, since: time.Now().Add(-MostAge).UnixMicro()}
	out := &Trial{Rules: []RuleTrial{}, Subjects: []SubjectTrial{}, NotJudged: []replay.NotJudged{}, Notes: []string{}, Instances: 1}
	if len(chunks) == 0 {
		return out, nil
	}
	t.begin(before, after)
	t.fresh = r.fresh && len(t.chunks) == len(chunks) && t.oldest() >= t.since && r.complete()
	return out, t.run(ctx, out)
}
