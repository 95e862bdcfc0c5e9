package recommend

import (
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Result has the recommended limits, the data behind them, and the confidence in them.
type Result struct {
	Share      string `json:"share"`
	Confidence string `json:"confidence"`
	Window     string `json:"window"`
	Key        string `json:"key"`
	Tokens     string `json:"tokens,omitempty"` // the kind of tokens that limits count; empty if they count requests

	Requests   int64     `json:"requests"`
	Unreadable int64     `json:"unreadable"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Days       int       `json:"days"`
	Files      []string  `json:"files"`
	// Needed is the number of subjects that a promise needs, including those that are used to choose the rate.
	Needed  int `json:"needed_subjects"`
	Sampled int `json:"sampled,omitempty"` // if not 0, memory was too small, and one in this many subjects was measured

	Rules  []Rule  `json:"rules"`
	Aside  []Aside `json:"set_aside,omitempty"`
	Replay *Replay `json:"replay,omitempty"`
	// Notes are whole sentences about facts that limit the trust in the numbers.
	Notes []string `json:"notes,omitempty"`

	Document policy.Document `json:"policy"`
}

// Rule is a route, or all routes together, with the proposed limit.
type Rule struct {
	Name  string `json:"name"`
	Match string `json:"match,omitempty"` // empty means every request
	// Limit is empty if there are too few subjects for a limit.
	Limit     string `json:"limit,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Exact     int64  `json:"exact_burst,omitempty"` // the burst before it was rounded up

	Subjects int   `json:"subjects"` // subjects that are not set aside
	Requests int64 `json:"requests"` // requests of these subjects
	Above    int   `json:"subjects_above"`
	// RequestsAbove is the number of requests of the subjects above the limit. Denied requests are among these.
	RequestsAbove int64 `json:"requests_above"`

	// Promised reports whether at most the requested share of all subjects is above the limit, with the requested
	// confidence. Confidence is the confidence that the data give for the requested share. Attainable is the share
	// for which the data give the requested confidence.
	Promised   bool    `json:"promised"`
	N          int     `json:"n"` // the number of subjects that were used to bound the burst
	J          int     `json:"j"` // the number of these subjects that may be above the limit
	Confidence float64 `json:"confidence"`
	Attainable float64 `json:"attainable_share"`
	// NextDay is the probability that on a day with as many subjects as the busiest day, at most twice the
	// requested share of them exceeds the limit.
	NextDay      float64 `json:"next_day"`
	NextSubjects int     `json:"next_day_subjects"`
	// Harm is the largest number of requests, or tokens, of a subject that the limit allows in a window.
	Harm float64 `json:"most_in_window"`
	// WithAside is the burst, rounded up, that the limit would have if no subject were set aside.
	WithAside  int64          `json:"burst_with_set_aside,omitempty"`
	Bursts     []Quantile     `json:"bursts,omitempty"`
	Neighbors  []Neighbor     `json:"neighbors,omitempty"`
	Convention *Convention    `json:"rule_of_thumb,omitempty"`
	Forward    []Forward      `json:"forward,omitempty"`
	Histogram  []HistogramBar `json:"histogram,omitempty"`
}

// Quantile is the burst that the fraction Share of the subjects does not exceed, at the rate of the limit.
type Quantile struct {
	Share float64 `json:"share"`
	Burst int64   `json:"burst"`
}

// HistogramBar has the number of subjects that need a burst of at most To, and more than the To of the bar before.
type HistogramBar struct {
	To       int64 `json:"to"`
	Subjects int   `json:"subjects"`
}

// Neighbor is a limit for the same promise with the next lower or next higher rate of the grid.
type Neighbor struct {
	Limit string  `json:"limit"`
	Harm  float64 `json:"most_in_window"`
}

// Convention is the limit that articles advise: a rate a little above the 99th percentile of a client's requests in
// a second, with a capacity for five to ten seconds of such requests.
type Convention struct {
	P99   int32   `json:"p99_per_second"` // the 99th percentile of the busiest seconds of the subjects
	Limit string  `json:"limit"`
	Above int     `json:"subjects_above"`
	Harm  float64 `json:"most_in_window"`
}

// Forward is the result of a trial: a limit is learned from the days before a day, and applied to that day.
type Forward struct {
	Day           string  `json:"day"`
	From          int     `json:"learned_from"` // the number of subjects on the days before
	Limit         string  `json:"limit"`
	Algorithm     string  `json:"algorithm"`
	Subjects      int     `json:"subjects"`
	Above         int     `json:"subjects_above"`
	Requests      int64   `json:"requests"`
	RequestsAbove int64   `json:"requests_above"`
	AsideAbove    int     `json:"set_aside_above"`
	Within        bool    `json:"within_twice"`
	Confidence    float64 `json:"confidence"` // the probability, before that day, that Within would be true
	Why           string  `json:"why_not,omitempty"`
}

// Aside is a subject that looks like abuse and was left out of the estimates.
type Aside struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Burst    int64  `json:"burst"` // the burst at a rate of one request a minute
	Why      string `json:"why"`
}

// Replay counts the requests that the policy denies in the log from which it was made.
type Replay struct {
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`  // requests of subjects that are not set aside, denied by any rule
	Subjects int   `json:"subjects"` // subjects with at least one such request
	// AsideRefused and AsideSubjects are the same numbers for the subjects set aside.
	AsideRefused  int64                 `json:"set_aside_refused"`
	AsideSubjects int                   `json:"set_aside_subjects_refused"`
	Rules         map[string]ReplayRule `json:"rules"`
	Kept          bool                  `json:"promise_kept"` // whether each rule keeps its promise
}

// ReplayRule counts the requests that a rule denies.
type ReplayRule struct {
	Refused       int64 `json:"refused"`
	Subjects      int   `json:"subjects_refused"`
	AsideRefused  int64 `json:"set_aside_refused"`
	AsideSubjects int   `json:"set_aside_subjects_refused"`
	// MayRefuse and MaySubjects are the largest numbers of denied requests, and of subjects with denied requests,
	// that the share permits.
	MayRefuse   int64 `json:"may_refuse"`
	MaySubjects int64 `json:"may_refuse_subjects"`
}
