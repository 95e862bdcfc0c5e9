package recent

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay"
)

// Trial is the effect that a change of the policy would have had on the recorded requests.
type Trial struct {
	From     time.Time `json:"from,omitzero"` // the time of the first request
	To       time.Time `json:"to,omitzero"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"` // the number of requests that were really denied
	// Before is the number of requests that the policy in force denies if all counters start empty. After is the same
	// number for the changed policy.
	Before int64 `json:"refused_before"`
	After  int64 `json:"refused_after"`
	Change
	// Most is an approximate upper bound for the effect of the change on the real decisions. Real counters may have
	// been used before the first record. So the trial also runs with counters of the changed rules that start full,
	// and each field of Most is the largest result. Most is equal to Change if real counters started empty and
	// NotJudged is empty. It is not a strict bound, because a change can also affect which of a subject's requests
	// are allowed.
	Most Change `json:"at_most"`
	// Differs is the number of requests for which the policy in force leads to another decision in the trial than
	// in reality. Reasons are that real counters were older or shared by instances, or that the policy has changed
	// since.
	Differs   int64              `json:"decided_otherwise"`
	Rules     []RuleTrial        `json:"rules"`    // the rules that deny requests under one of the policies
	Subjects  []SubjectTrial     `json:"subjects"` // the subjects with the most changed decisions
	NotJudged []replay.NotJudged `json:"not_judged"`
	Notes     []string           `json:"notes"`     // sentences
	Instances int                `json:"instances"` // the number of instances with these requests
}

// Change is the number of requests with another decision after a change.
type Change struct {
	Newly int64 `json:"newly_refused"`
	Freed int64 `json:"no_longer_refused"`
}

// RuleTrial is the effect of the change under one rule, for requests whose limits come from one source.
type RuleTrial struct {
	Rule string `json:"rule"`
	// From is the source of the limits, such as "rule", "tier:pro", "override" or "block".
	From string `json:"limits_from"`
	// Before and After are the numbers of requests that the rule denies under the two policies, or would deny if it
	// were enforced.
	Before int64 `json:"refused_before"`
	After  int64 `json:"refused_after"`
	// Change counts the requests that only one of the policies denies, if this rule is one of those that deny them.
	Change
}

// SubjectTrial is the effect of the change on one subject of a rule.
type SubjectTrial struct {
	Rule    string `json:"rule"`
	Subject string `json:"subject"` // as show_key shows it
	Change
}
