package replay

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
)

// Report describes what a policy would have done to the requests of a log.
type Report struct {
	Requests   int64 `json:"requests"`   // requests that were decided
	Refused    int64 `json:"refused"`    // requests that enforced rules denied
	Unreadable int64 `json:"unreadable"` // unreadable lines
	Exempt     int64 `json:"exempt,omitempty"`
	// Malformed is the number of requests that were denied because they lack a key part, or because servers read
	// their paths in different ways.
	Malformed int64 `json:"malformed,omitempty"`
	// Subjects is the number of subjects, and SubjectsRefused the number of those that any enforced rule has denied
	// at least once. Rules with the same key share their subjects. The numbers are exact up to [MaxSubjects] subjects
	// of all rules together. With more subjects, the numbers are estimates, and Estimated is set.
	SubjectsRefused int64           `json:"subjects_refused"`
	Subjects        int64           `json:"subjects"`
	Estimated       bool            `json:"estimated,omitempty"`
	Rules           map[string]Rule `json:"rules"`
	Order           []string        `json:"order"` // names of the rules in the order of the policy

	From time.Time `json:"from,omitzero"` // the times of the first and the last request
	To   time.Time `json:"to,omitzero"`
	Log  Log       `json:"log"`

	// Series has the requests and denials over time, in at most 500 steps.
	Series Series `json:"series"`
	// Top has the subjects with the most denials over all rules.
	Top []Subject `json:"top"`
	// Statuses has the responses in the log by class of status, such as "2xx", and how many of their requests would
	// have been denied. "none" is for requests without a status.
	Statuses []Status `json:"statuses"`

	NotJudged []NotJudged `json:"not_judged,omitempty"` // rules for which the log contains too little data
	NeverHit  []string    `json:"never_hit,omitempty"`  // rules that matched no request
	// Shadowed has each rule for which another rule has denied all the same requests.
	Shadowed []Shadowed `json:"always_beside,omitempty"`
	// Notes are whole sentences about facts that limit the trust in the numbers, such as that times are ends of
	// requests, that all requests are in one minute of the hour, or that a store was too small for all states.
	Notes []string `json:"notes,omitempty"`

	// Against is the comparison with another policy, or nil.
	Against *Difference `json:"against,omitempty"`
}

// Difference has the changes if another policy, or another way to count, replaces the policy of the report. The
// comments call both of these the other policy.
type Difference struct {
	Other  string       `json:"other"`                   // a description of the other policy, such as "another policy"
	Report *Report      `json:"report"`                  // the report of the other policy
	Both   int64        `json:"refused_by_both"`         // requests that both policies would deny
	Only   int64        `json:"refused_by_first_only"`   // requests that only the first policy would deny
	Newly  int64        `json:"refused_by_against_only"` // requests that only the other policy would deny
	Rules  []RuleChange `json:"rules"`                   // the rules of both policies, in the order of the first policy and then the other
	// ClientsNewly is the number of clients that only the other policy denies, and ClientsFreed the number of those
	// that only the first policy denies. These numbers are lower bounds with more than about [MaxSubjects] denied
	// clients.
	ClientsNewly int64 `json:"clients_newly_refused"`
	ClientsFreed int64 `json:"clients_freed"`
	// Suffer has the clients that the other policy denies more often, and Relieved those that it denies less often.
	// The largest difference comes first.
	Suffer   []ClientChange `json:"suffer,omitempty"`
	Relieved []ClientChange `json:"relieved,omitempty"`
}

// RuleChange is a rule of either policy. Before or After is nil if its policy has no rule with this name, or if the
// rule could not be judged.
type RuleChange struct {
	Rule   string `json:"rule"`
	Before *Rule  `json:"before"`
	After  *Rule  `json:"after"`
}

// ClientChange has how many requests of a client each policy denies.
type ClientChange struct {
	Client   string `json:"client"`
	Requests int64  `json:"requests"` // requests since the first denial by either policy
	Before   int64  `json:"before"`
	After    int64  `json:"after"`
}

// Log describes the logs that were read.
type Log struct {
	Files   []feed.File   `json:"files"`
	Lines   int64         `json:"lines"`
	Skipped int64         `json:"skipped"`
	Late    int64         `json:"late"`
	Unread  []feed.Unread `json:"unread,omitempty"`
	// Limited is the number of requests with status 429 or 503 in the log. The log of a server behind a limiter has
	// retries, rather than the demand of clients.
	Limited int64 `json:"limited"`
}

// Rule has what one rule would have done.
type Rule struct {
	Matched int64 `json:"matched"`       // requests that the rule counted, denied or exempted
	Refused int64 `json:"refused"`       // requests that the rule denied, or in shadow mode would have denied
	Alone   int64 `json:"refused_alone"` // requests that only this rule denied
	Shadow  bool  `json:"shadow,omitempty"`

	// Kind is "limit", "block" or "exempt"; only limits have Limits, an Algorithm and a Key.
	Kind      string   `json:"kind"`
	Key       []string `json:"key,omitempty"`
	Limits    []string `json:"limits"` // as in the policy
	Algorithm string   `json:"algorithm"`
	// Enforce is the rollout percentage of the rule, such as "10%". Empty means all subjects. Refused also counts the
	// requests of subjects for which the rule is not enforced yet.
	Enforce string `json:"enforce,omitempty"`

	Subjects        int64 `json:"subjects"`
	SubjectsRefused int64 `json:"subjects_refused"`
	// Hardness counts the denied subjects by the longest time for which each was down: denied only once; less than
	// a minute, ten minutes, an hour, or a day; or longer. A subject is down from a denial until its next allowed
	// request, or until the end of the denial's wait.
	Hardness [6]int64 `json:"hardness"`
	// Longest is the longest wait of a denial.
	Longest time.Duration `json:"longest_wait_ns"`
	Delayed int64         `json:"delayed,omitempty"` // requests that a queue would have delayed
	// Boundary is the fraction of the denials by the rule's fixed windows that fell into the first tenth of a window.
	// By chance, it would be 0.1.
	Boundary float64   `json:"boundary,omitempty"`
	Series   []int64   `json:"series"` // denials in the steps of the report
	Top      []Subject `json:"top"`
}

// Series has counts over time.
type Series struct {
	Begin    time.Time     `json:"begin"`
	Step     time.Duration `json:"step_ns"`
	Requests []int64       `json:"requests"`
	Refused  []int64       `json:"refused"`
}

// Subject is a subject, with the key as its rule shows it.
type Subject struct {
	Rule     string    `json:"rule"`
	Key      string    `json:"key"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	First    time.Time `json:"first"` // time of the first denial
	Last     time.Time `json:"last"`
	// Down is the longest time for which the subject was down: from a denial to the next allowed request, or to the
	// end of the wait of the last denial before that request. At the end of the log, it lasts until the last
	// denial.
	Down time.Duration `json:"down_ns"`
	// Pattern describes how the requests were spread over time: "a burst of 40 within 2 s, then silence".
	Pattern string `json:"pattern"`
	Path    string `json:"path"` // the path of most of its denied requests, without the query
}

// Status is a class of the statuses in the log.
type Status struct {
	Class    string `json:"class"`
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
}

// NotJudged is a rule that was left out, and why.
type NotJudged struct {
	Rule  string `json:"rule"`
	Needs string `json:"needs"` // "body:username"
	Why   string `json:"why"`   // a sentence
}

// Shadowed is a rule that makes no difference: another rule denies everything that it denies.
type Shadowed struct {
	Rule string `json:"rule"`
	By   string `json:"by"`
}
