package recommend

import (
	"context"
	"strings"
	"sync"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay"
)

// replayed replays the log with the policy that was made from it, and counts denied subjects.
func replayed(ctx context.Context, c Config, r *Result, abuse []aside) (*Replay, error) {
	if len(r.Document.Rules) == 0 {
		return nil, nil
	}
	w := &witness{left: without(abuse), rules: map[string]*refusals{}, all: newRefusals()}
	for _, rule := range r.Document.Rules {
		w.rules[rule.Name] = newRefusals()
	}
	report, err := replay.Run(ctx, replay.Config{
		Files: c.Files, Feed: c.reading(2), Document: r.Document, Compile: c.Compile,
		NewStore: func(maxBytes int64) replay.Store { return &watchedStore{c.NewStore(maxBytes), w} },
	})
	if err != nil {
		return nil, err
	}
	out := &Replay{
		Requests: report.Requests, Refused: w.all.others.requests, Subjects: len(w.all.others.subjects),
		AsideRefused: w.all.aside.requests, AsideSubjects: len(w.all.aside.subjects), Rules: map[string]ReplayRule{}, Kept: true,
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		seen := w.rules[rule.Name]
		if seen == nil {
			continue
		}
		of := ReplayRule{
			Refused: seen.others.requests, Subjects: len(seen.others.subjects), AsideRefused: seen.aside.requests, AsideSubjects: len(seen.aside.subjects),
			MayRefuse: part(c.Share, rule.Requests), MaySubjects: part(c.Share, int64(rule.Subjects)),
		}
		out.Rules[rule.Name] = of
		// A sample cannot show whether the promise is kept.
		out.Kept = out.Kept && (r.Sampled > 0 || of.Refused <= of.MayRefuse && int64(of.Subjects) <= of.MaySubjects)
	}
	return out, nil
}

// witness counts the denials of stores. Its maps are small if the policy keeps its promise.
type witness struct {
	left map[string]bool // subjects set aside

	mu    sync.Mutex
	rules map[string]*refusals
	all   *refusals // denials by any rule; its aside has the requests that were denied only for subjects set aside
}

// refusals has the denials of the subjects that are set aside, and of the others.
type refusals struct{ others, aside refused }

type refused struct {
	requests int64
	subjects map[string]bool
}

func newRefusals() *refusals {
	return &refusals{refused{subjects: map[string]bool{}}, refused{subjects: map[string]bool{}}}
}

// group returns the denials of the subjects that are set aside, or of the others.
func (r *refusals) group(aside bool) *refused {
	if aside {
		return &r.aside
	}
	return &r.others
}

// watchedStore is a store that counts its denials.
type watchedStore struct {
	replay.Store
	*witness
}

// TakeAt implements [replay.Store].
func (w *watchedStore) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := w.Store.TakeAt(ctx, now, charges, receipts); err != nil {
		return err
	}
	for i := range receipts {
		if !receipts[i].Fits {
			w.note(charges, receipts)
			break
		}
	}
	return nil
}

func (w *witness) note(charges []sluice.Charge, receipts []sluice.Receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	some, onlyAside := false, true
	for i := range charges {
		name, subject, _ := strings.Cut(charges[i].Key, "/")
		r := w.rules[name]
		if receipts[i].Fits || r == nil {
			continue
		}
		subject = strings.Clone(subject)
		aside := w.left[subject]
		one := r.group(aside)
		one.requests++
		one.subjects[subject] = true
		w.all.group(aside).subjects[subject] = true
		some, onlyAside = true, onlyAside && aside
	}
	if some {
		w.all.group(onlyAside).requests++
	}
}
