package recommend

import (
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Result is what is recommended, from what, and how sure that is.
type Result struct {
	Share      string `json:"share"`
	Confidence string `json:"confidence"`
	Window     string `json:"window"`
	Key        string `json:"key"`
	Tokens     string `json:"tokens,omitempty"` // that limits count; empty: requests

	Requests   int64     `json:"requests"`
	Unreadable int64     `json:"unreadable"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Days       int       `json:"days"`
	Files      []string  `json:"files"`
	// Needed is how many subjects a promise takes at least, with those that the rate is chosen by.
	Needed  int `json:"needed_subjects"`
	Sampled int `json:"sampled,omitempty"` // one subject in so many was looked at, for want of memory

	Rules  []Rule  `json:"rules"`
	Aside  []Aside `json:"set_aside,omitempty"`
	Replay *Replay `json:"replay,omitempty"`
	// Notes are what a reader must know to trust the numbers. Whole sentences.
	Notes []string `json:"notes,omitempty"`

	Document policy.Document `json:"policy"`
}

// Rule is a route, or all of them, and the limit that is proposed for it.
type Rule struct {
	Name  string `json:"name"`
	Match string `json:"match,omitempty"` // empty is every request
	// Limit is empty where there are too few subjects for any. Algorithm is how it is counted.
	Limit     string `json:"limit,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Exact     int64  `json:"exact_burst,omitempty"` // before it was rounded up

	Subjects int   `json:"subjects"` // that are not set aside
	Requests int64 `json:"requests"` // of these
	Above    int   `json:"subjects_above"`
	// RequestsAbove is how many requests these subjects made: at most so many are refused.
	RequestsAbove int64 `json:"requests_above"`

	// Promised reports that at most the share of all subjects is above the limit, with the requested confidence.
	// Confidence is what the data give that share; Attainable is the share that they give that confidence.
	Promised   bool    `json:"promised"`
	N          int     `json:"n"` // subjects that the burst is bounded by
	J          int     `json:"j"` // of these that may be above
	Confidence float64 `json:"confidence"`
	Attainable float64 `json:"attainable_share"`
	// NextDay is the probability that among as many subjects as the busiest day had at most
	// twice the share is above.
	NextDay      float64 `json:"next_day"`
	NextSubjects int     `json:"next_day_subjects"`
	// Harm is the most requests, or tokens, that a subject gets through in a window.
	Harm float64 `json:"most_in_window"`
	// WithAside is the burst, rounded up, with no subject set aside.
	WithAside  int64          `json:"burst_with_set_aside,omitempty"`
	Bursts     []Quantile     `json:"bursts,omitempty"`
	Neighbors  []Neighbor     `json:"neighbors,omitempty"`
	Convention *Convention    `json:"rule_of_thumb,omitempty"`
	Forward    []Forward      `json:"forward,omitempty"`
	Histogram  []HistogramBar `json:"histogram,omitempty"`
}

// Quantile is a burst that a share of the subjects keep within, at the rate of the limit.
type Quantile struct {
	Share float64 `json:"share"`
	Burst int64   `json:"burst"`
}

// HistogramBar is how many subjects need a burst of at most To, and of more than the bar before.
type HistogramBar struct {
	To       int64 `json:"to"`
	Subjects int   `json:"subjects"`
}

// Neighbor is another limit that keeps the same promise on the log.
type Neighbor struct {
	Limit string  `json:"limit"`
	Harm  float64 `json:"most_in_window"`
}

// Convention is what articles advise: a little above the 99th percentile of the requests of a client in a second,
// with a capacity for five to ten seconds of them.
type Convention struct {
	P99   int32   `json:"p99_per_second"` // of the busiest second of each subject
	Limit string  `json:"limit"`
	Above int     `json:"subjects_above"`
	Harm  float64 `json:"most_in_window"`
}

// Forward is how a limit that was learned from the days before did on a day.
type Forward struct {
	Day           string  `json:"day"`
	From          int     `json:"learned_from"` // subjects
	Limit         string  `json:"limit"`
	Algorithm     string  `json:"algorithm"`
	Subjects      int     `json:"subjects"`
	Above         int     `json:"subjects_above"`
	Requests      int64   `json:"requests"`
	RequestsAbove int64   `json:"requests_above"`
	AsideAbove    int     `json:"set_aside_above"`
	Within        bool    `json:"within_twice"`
	Confidence    float64 `json:"confidence"` // that it would be
	Why           string  `json:"why_not,omitempty"`
}

// Aside is a subject that looks like abuse, and was left out of the estimates.
type Aside struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Burst    int64  `json:"burst"` // at a rate of one a minute
	Why      string `json:"why"`
}

// Replay is what the policy has refused on the log that it was made from.
type Replay struct {
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`  // of the subjects that are not set aside, by any rule
	Subjects int   `json:"subjects"` // of which at least one request was
	// AsideRefused and AsideSubjects are the same of those set aside.
	AsideRefused  int64                 `json:"set_aside_refused"`
	AsideSubjects int                   `json:"set_aside_subjects_refused"`
	Rules         map[string]ReplayRule `json:"rules"`
	Kept          bool                  `json:"promise_kept"` // by each rule
}

// ReplayRule is what a rule has refused.
type ReplayRule struct {
	Refused       int64 `json:"refused"`
	Subjects      int   `json:"subjects_refused"`
	AsideRefused  int64 `json:"set_aside_refused"`
	AsideSubjects int   `json:"set_aside_subjects_refused"`
	// MayRefuse and MaySubjects are what the share allows on this log.
	MayRefuse   int64 `json:"may_refuse"`
	MaySubjects int64 `json:"may_refuse_subjects"`
}
