package replay

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
)

// Report is what a policy would have done to the requests of a log.
type Report struct {
	Requests   int64 `json:"requests"`   // that were decided
	Refused    int64 `json:"refused"`    // by the rules that enforce
	Unreadable int64 `json:"unreadable"` // lines
	Exempt     int64 `json:"exempt,omitempty"`
	// Malformed are refused, too, for what they lack: a part of a key, or a path that all servers read
	// in the same way.
	Malformed int64 `json:"malformed,omitempty"`
	// SubjectsRefused is how many values of keys were refused at least once, by any enforced rule, and Subjects how
	// many there were; those of rules with the same key count once. They are exact up to [MaxSubjects] of all rules
	// together, and estimates above, if Estimated.
	SubjectsRefused int64           `json:"subjects_refused"`
	Subjects        int64           `json:"subjects"`
	Estimated       bool            `json:"estimated,omitempty"`
	Rules           map[string]Rule `json:"rules"`
	Order           []string        `json:"order"` // names of the rules as the policy has them

	From time.Time `json:"from,omitzero"` // first and last request
	To   time.Time `json:"to,omitzero"`
	Log  Log       `json:"log"`

	// Series are requests and refusals over time: Step long each, from Begin on, at most 500.
	Series Series `json:"series"`
	// Top are the subjects that were refused most, over all rules.
	Top []Subject `json:"top"`
	// Statuses are what the log's answers were by class, such as "2xx", and how many of them would have
	// been refused; "none" is those without one.
	Statuses []Status `json:"statuses"`

	NotJudged []NotJudged `json:"not_judged,omitempty"` // rules that the log tells too little for
	NeverHit  []string    `json:"never_hit,omitempty"`  // rules that no request met
	// Shadowed are rules that never refused a request that another did not refuse, too.
	Shadowed []Shadowed `json:"always_beside,omitempty"`
	// Notes are what a reader must know to trust the numbers: that times are ends, that all requests
	// lie in one minute of the hour, that a store too small has forgotten states. Whole sentences.
	Notes []string `json:"notes,omitempty"`

	// Against is what another policy would change, or nil.
	Against *Difference `json:"against,omitempty"`
}

// Difference is what changes if another policy takes the place of the one of the report, or another way
// to count.
type Difference struct {
	Other  string       `json:"other"`                   // what it is put to beside the policy: "another policy"
	Report *Report      `json:"report"`                  // of the other policy
	Both   int64        `json:"refused_by_both"`         // requests
	Only   int64        `json:"refused_by_first_only"`   // that would be let through
	Newly  int64        `json:"refused_by_against_only"` // that would be refused
	Rules  []RuleChange `json:"rules"`                   // of both, in the order of the first policy and then the other
	// ClientsNewly are clients that the first policy never refuses and the other does, and
	// ClientsFreed the other way round. They are exact up to [MaxSubjects], and beyond at least so many.
	ClientsNewly int64 `json:"clients_newly_refused"`
	ClientsFreed int64 `json:"clients_freed"`
	// Suffer are the clients that the other policy refuses more often, and Relieved those that it
	// refuses less often, those with the largest difference first.
	Suffer   []ClientChange `json:"suffer,omitempty"`
	Relieved []ClientChange `json:"relieved,omitempty"`
}

// RuleChange is a rule of either policy: nil is none of that name, or one that could not be judged.
type RuleChange struct {
	Rule   string `json:"rule"`
	Before *Rule  `json:"before"`
	After  *Rule  `json:"after"`
}

// ClientChange is how many requests of a client are refused, and were.
type ClientChange struct {
	Client   string `json:"client"`
	Requests int64  `json:"requests"` // since the first refusal by either
	Before   int64  `json:"before"`
	After    int64  `json:"after"`
}

// Log is what was read.
type Log struct {
	Files   []feed.File   `json:"files"`
	Lines   int64         `json:"lines"`
	Skipped int64         `json:"skipped"`
	Late    int64         `json:"late"`
	Unread  []feed.Unread `json:"unread,omitempty"`
	// Limited are requests with status 429 or 503 in the log: behind a limiter a log has retries, and not the
	// demand of clients.
	Limited int64 `json:"limited"`
}

// Rule is what one rule would have done.
type Rule struct {
	Matched int64 `json:"matched"`       // requests that it counted, refused or exempted
	Refused int64 `json:"refused"`       // requests that it refused, or as a shadow would have
	Alone   int64 `json:"refused_alone"` // and no other rule
	Shadow  bool  `json:"shadow,omitempty"`

	// Kind is "limit", "block" or "exempt"; only limits have Limits, an Algorithm and a Key.
	Kind      string   `json:"kind"`
	Key       []string `json:"key,omitempty"`
	Limits    []string `json:"limits"` // as the policy has them
	Algorithm string   `json:"algorithm"`
	// Enforce is the share of the subjects for which the rule refuses, such as "10%"; empty is all.
	// Refused counts the others, too.
	Enforce string `json:"enforce,omitempty"`

	Subjects        int64 `json:"subjects"`
	SubjectsRefused int64 `json:"subjects_refused"`
	// Hardness is how many of the refused subjects were down for how long at the longest: refused once; for less
	// than a minute, ten minutes, an hour, a day; or longer. A subject is down from a denial until its next allowed
	// request, or until the end of the denial's wait.
	Hardness [6]int64 `json:"hardness"`
	// Longest is the longest wait that a refusal told.
	Longest time.Duration `json:"longest_wait_ns"`
	Delayed int64         `json:"delayed,omitempty"` // requests that a queue would have held
	// Boundary is the share of refusals in the first tenth of a window, of fixed windows only: 0.1 is
	// what chance gives.
	Boundary float64   `json:"boundary,omitempty"`
	Series   []int64   `json:"series"` // refusals, in the steps of the report
	Top      []Subject `json:"top"`
}

// Series are counts over time.
type Series struct {
	Begin    time.Time     `json:"begin"`
	Step     time.Duration `json:"step_ns"`
	Requests []int64       `json:"requests"`
	Refused  []int64       `json:"refused"`
}

// Subject is one value of a key, as its rule shows keys.
type Subject struct {
	Rule     string    `json:"rule"`
	Key      string    `json:"key"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	First    time.Time `json:"first"` // refusal
	Last     time.Time `json:"last"`
	// Down is the longest time from a denial to the next allowed request, or to the end of the wait of the last
	// denial before it; at the end of the log, to the last denial.
	Down time.Duration `json:"down_ns"`
	// Pattern describes in a few words how its requests come: "a burst of 40 within 2 s, then silence".
	Pattern string `json:"pattern"`
	Path    string `json:"path"` // asked for most when it was refused, without its query
}

// Status is a class of the answers that the log tells.
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

// Shadowed is a rule with denials that another rule would have made as well.
type Shadowed struct {
	Rule string `json:"rule"`
	By   string `json:"by"`
}
