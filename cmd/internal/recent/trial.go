package recent

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay"
)

// Trial is the effect that a change of the policy would have had on the recorded requests.
type Trial struct {
	From     time.Time `json:"from,omitzero"` // the first request
	To       time.Time `json:"to,omitzero"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"` // really denied
	// Before and After are the numbers of requests that the policy in force and the changed one deny, both from
	// empty counters.
	Before int64 `json:"refused_before"`
	After  int64 `json:"refused_after"`
	Change
	// Most is an approximate upper bound for the effect of the change on the real decisions, with empty or with
	// full counters of the changed rules, because real counters may be older than the records. It is equal to
	// Change if they are not older. It is not a strict bound, because requests that compete for a limit can change
	// places.
	Most Change `json:"at_most"`
	// Differs is the number of requests that the policy in force decides differently in the trial than in reality,
	// because real counters are older or shared by instances, or the policy has changed since.
	Differs   int64              `json:"decided_otherwise"`
	Rules     []RuleTrial        `json:"rules"`    // rules that deny requests under one of the policies
	Subjects  []SubjectTrial     `json:"subjects"` // subjects with the most changes
	NotJudged []replay.NotJudged `json:"not_judged"`
	Notes     []string           `json:"notes"`     // sentences
	Instances int                `json:"instances"` // number of instances with these requests
}

// Change is the number of requests with another decision after a change.
type Change struct {
	Newly int64 `json:"newly_refused"`
	Freed int64 `json:"no_longer_refused"`
}

// RuleTrial is the effect of the change under one rule on requests with limits from one source.
type RuleTrial struct {
	Rule string `json:"rule"`
	// From is the source: "rule", "tier:pro", "override" or "block".
	From string `json:"limits_from"`
	// Before and After are the numbers of requests that the rule denies, or would deny as a shadow.
	Before int64 `json:"refused_before"`
	After  int64 `json:"refused_after"`
	// Change counts the requests that only one of the policies denies, if this rule is among those that deny them.
	Change
}

// SubjectTrial is the effect of the change on one subject of a rule.
type SubjectTrial struct {
	Rule    string `json:"rule"`
	Subject string `json:"subject"` // in the form that show_key sets
	Change
}
