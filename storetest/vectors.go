package storetest

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// Vector is a file of testdata/vectors. It has the answers that any implementation has to give to Takes of one
// charge under one key, or of two charges if there is a penalty. The README in testdata/vectors describes the
// fields.
type Vector struct {
	Name    string        `json:"-"` // the name of the file
	What    string        `json:"what"`
	Limit   VectorLimit   `json:"limit"`
	Penalty VectorPenalty `json:"penalty,omitzero"`
	Plan    VectorPlan    `json:"plan"`
	Steps   []VectorStep  `json:"steps"`
}

// VectorPenalty is a [sluice.Penalty] with its times in microseconds.
type VectorPenalty struct {
	First  int64 `json:"first"`
	Factor int64 `json:"factor,omitempty"`
	Most   int64 `json:"most,omitempty"`
	Forget int64 `json:"forget,omitempty"`
}

// VectorLimit is a [sluice.Limit] with its period in microseconds, or a MonthDay. The algorithm "in_flight" stands
// for Count permits of [sluice.NewInFlight], and "distinct" for [sluice.NewDistinct].
type VectorLimit struct {
	Algorithm string `json:"algorithm"`
	Count     int64  `json:"count"`
	Period    int64  `json:"period,omitempty"`
	Burst     int64  `json:"burst,omitempty"`
	MonthDay  int    `json:"month_day,omitempty"`
	// Most is the argument of [sluice.Plan.WithMost], if it is not 0.
	Most int64 `json:"most,omitempty"`
}

// VectorPlan has the numbers of a [sluice.Plan].
type VectorPlan struct {
	Tick     int64 `json:"tick"`
	Unit     int64 `json:"unit,omitempty"`
	Drain    int64 `json:"drain,omitempty"`
	Size     int64 `json:"size,omitempty"`
	Span     int64 `json:"span,omitempty"`
	Capacity int64 `json:"capacity"`
}

// VectorStep is a Take and its answer: the fields of a [sluice.Receipt] and of the [sluice.Decision] that the
// receipt leads to. Times are in microseconds. A RetryAfter of -1 means never.
type VectorStep struct {
	Now  int64 `json:"now"`
	Cost int64 `json:"cost"`
	Owe  bool  `json:"owe,omitempty"`
	// Count and Burst replace the limit's Count and Burst, if they are not 0.
	Count int64 `json:"count,omitempty"`
	Burst int64 `json:"burst,omitempty"`
	// Place and Until are the Permit and the Until of the charge.
	Place      uint64 `json:"place,omitempty"`
	Until      int64  `json:"until,omitempty"`
	Fits       bool   `json:"fits"`
	Used       int64  `json:"used"`
	Tick       int64  `json:"tick,omitempty"`
	Prev       int64  `json:"prev,omitempty"`
	Wait       int64  `json:"wait,omitempty"`
	Cut        int64  `json:"cut,omitempty"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after,omitempty"`
	ResetAfter int64  `json:"reset_after,omitempty"`
	Delay      int64  `json:"delay,omitempty"`
	// Lock is the answer to the charge of the penalty. The cost of that charge is 1 if Cost is above 0, and
	// otherwise Cost.
	Lock VectorLock `json:"lock,omitzero"`
}

// VectorLock is the expected state of a lock: see [VectorStep].
type VectorLock struct {
	Fits       bool  `json:"fits"`
	Penalties  int64 `json:"penalties,omitempty"`
	Until      int64 `json:"until,omitempty"`
	Forgotten  int64 `json:"forgotten,omitempty"`
	RetryAfter int64 `json:"retry_after,omitempty"`
	ResetAfter int64 `json:"reset_after,omitempty"`
}

// Vectors reads the vectors in a directory.
func Vectors(t testing.TB, dir string) []Vector {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s (%v)", dir, err)
	}
	vectors := make([]Vector, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &vectors[i])
		}
		if err != nil {
			t.Fatalf("vector %s: %v", file, err)
		}
		vectors[i].Name = filepath.Base(file)
	}
	return vectors
}

// Compile returns the plan of the vector's limit.
func (v Vector) Compile(t testing.TB) *sluice.Plan {
	t.Helper()
	if v.Limit.Algorithm == "in_flight" {
		return inFlight(t, v.Limit.Count)
	}
	if v.Limit.Algorithm == "distinct" {
		return distinct(t, v.Limit.Count, time.Duration(v.Limit.Period)*time.Microsecond)
	}
	a, err := sluice.ParseAlgorithm(v.Limit.Algorithm)
	if err != nil {
		t.Fatal(err)
	}
	period := time.Duration(v.Limit.Period) * time.Microsecond
	p := plan(t, sluice.Limit{Count: v.Limit.Count, Period: period, Burst: v.Limit.Burst, Algorithm: a, MonthDay: v.Limit.MonthDay})
	if v.Limit.Most > 0 {
		p = withMost(t, p, v.Limit.Most)
	}
	return p
}

// Compile returns the plan of a step of the vector v. p is the plan of the vector's limit.
func (s VectorStep) Compile(t testing.TB, v Vector, p *sluice.Plan) *sluice.Plan {
	t.Helper()
	if s.Count == 0 && s.Burst == 0 {
		return p
	}
	v.Limit.Count, v.Limit.Burst = cmp.Or(s.Count, v.Limit.Count), cmp.Or(s.Burst, v.Limit.Burst)
	return v.Compile(t)
}

// charges returns the charges of a step under a key: one for the limit and, if lock is not nil, one for the lock.
func (s VectorStep) charges(key string, p, lock *sluice.Plan) []sluice.Charge {
	charges := []sluice.Charge{{Key: key, Plan: p, Cost: s.Cost, Owe: s.Owe, Permit: s.Place, Until: s.Until}}
	if lock != nil {
		charges = append(charges, sluice.Charge{Key: key, Plan: lock, Cost: min(s.Cost, 1)})
	}
	return charges
}

// Lock returns the plan of the vector's penalty, or nil.
func (v Vector) Lock(t testing.TB) *sluice.Plan {
	t.Helper()
	if v.Penalty == (VectorPenalty{}) {
		return nil
	}
	length := func(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
	lock, err := sluice.Penalty{
		First: length(v.Penalty.First), Factor: v.Penalty.Factor, Most: length(v.Penalty.Most), Forget: length(v.Penalty.Forget),
	}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// RunVectors checks a store, and the decisions derived from its receipts, against the vectors in a directory.
func RunVectors(t *testing.T, dir string, newStore func(t *testing.T) TimedStore) {
	for _, v := range Vectors(t, dir) {
		t.Run(v.Name, func(t *testing.T) {
			p := v.Compile(t)
			if numbers := (VectorPlan{p.Tick, p.Unit, p.Drain, p.Size, p.Span, p.Capacity}); numbers != v.Plan {
				t.Fatalf("the plan is %+v, want %+v", numbers, v.Plan)
			}
			store, lock, own := newStore(t), v.Lock(t), p
			for i, want := range v.Steps {
				p := want.Compile(t, v, own)
				charges := want.charges(t.Name(), p, lock)
				receipts := spoilt(len(charges))
				if err := store.TakeAt(t.Context(), want.Now, charges, receipts); err != nil {
					t.Fatalf("step %d: %v", i+1, err)
				}
				got := want.answer(receipts[0], p.Decide(want.Cost, receipts[0]))
				if lock != nil {
					got.Lock = lockAnswer(receipts[1], lock.Decide(charges[1].Cost, receipts[1]))
				}
				if got != want {
					t.Fatalf("step %d:\n got %+v\nwant %+v", i+1, got, want)
				}
			}
		})
	}
}

// answer returns a copy of s with the answer filled in from a receipt and its decision.
func (s VectorStep) answer(r sluice.Receipt, d sluice.Decision) VectorStep {
	s = VectorStep{
		Now: r.Now, Cost: s.Cost, Owe: s.Owe, Count: s.Count, Burst: s.Burst, Place: s.Place, Until: s.Until,
		Fits: r.Fits, Used: r.Used, Tick: r.Tick, Prev: r.Prev, Wait: r.Wait, Cut: r.Cut,
		Remaining: d.Remaining, RetryAfter: -1, ResetAfter: d.ResetAfter.Microseconds(), Delay: d.Delay.Microseconds(),
	}
	if d.RetryAfter != sluice.Never {
		s.RetryAfter = d.RetryAfter.Microseconds()
	}
	return s
}

// lockAnswer returns the answer for a lock from a receipt and its decision.
func lockAnswer(r sluice.Receipt, d sluice.Decision) VectorLock {
	return VectorLock{
		Fits: r.Fits, Penalties: r.Used, Until: r.Tick, Forgotten: r.Prev,
		RetryAfter: d.RetryAfter.Microseconds(), ResetAfter: d.ResetAfter.Microseconds(),
	}
}
