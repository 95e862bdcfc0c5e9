package recommend

import (
	"context"
	"strings"
	"sync"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay"
)

// replayed puts the log to the policy that was made from it, and counts whom it refuses.
func replayed(ctx context.Context, c Config, r *Result, abuse []aside) (*Replay, error) {
	if len(r.Document.Rules) == 0 {
		return nil, nil
	}
	w := &witness{left: without(abuse), rules: map[string]*refusals{}, subjects: map[string]bool{}, asideSubjects: map[string]bool{}}
	for _, rule := range r.Document.Rules {
		w.rules[rule.Name] = &refusals{subjects: map[string]bool{}, aside: map[string]bool{}}
	}
	report, err := replay.Run(ctx, replay.Config{
		Files: c.Files, Feed: c.reading(2), Document: r.Document, Compile: c.Compile,
		NewStore: func(maxBytes int64) replay.Store { return &watchedStore{c.NewStore(maxBytes), w} },
	})
	if err != nil {
		return nil, err
	}
	out := &Replay{Requests: report.Requests, Refused: w.refused, Subjects: len(w.subjects), AsideRefused: w.asideRefused, AsideSubjects: len(w.asideSubjects), Rules: map[string]ReplayRule{}, Kept: true}
	for i := range r.Rules {
		rule := &r.Rules[i]
		seen := w.rules[rule.Name]
		if seen == nil {
			continue
		}
		of := ReplayRule{
			Refused: seen.refused, Subjects: len(seen.subjects), AsideRefused: seen.asideRefused, AsideSubjects: len(seen.aside),
			MayRefuse: part(c.Share, rule.Requests), MaySubjects: part(c.Share, int64(rule.Subjects)),
		}
		out.Rules[rule.Name] = of
		// What was seen of a sample says nothing exact of all.
		out.Kept = out.Kept && (r.Sampled > 0 || of.Refused <= of.MayRefuse && int64(of.Subjects) <= of.MaySubjects)
	}
	return out, nil
}

// witness counts what stores refuse. Refusals are few where a policy keeps its promise.
type witness struct {
	left map[string]bool // who is set aside

	mu       sync.Mutex
	rules    map[string]*refusals
	refused  int64 // requests of the others
	subjects map[string]bool
	// asideRefused are the requests that are refused for those who are set aside alone.
	asideRefused  int64
	asideSubjects map[string]bool
}

type refusals struct {
	refused, asideRefused int64
	subjects, aside       map[string]bool
}

// watchedStore is a store whose refusals are counted.
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
	other, aside := false, false
	for i := range charges {
		if receipts[i].Fits {
			continue
		}
		name, subject, _ := strings.Cut(charges[i].Key, "/")
		r := w.rules[name]
		if r == nil {
			continue
		}
		if subject = strings.Clone(subject); w.left[subject] {
			r.asideRefused++
			r.aside[subject] = true
			aside, w.asideSubjects[subject] = true, true
			continue
		}
		other = true
		r.refused++
		r.subjects[subject] = true
		w.subjects[subject] = true
	}
	switch {
	case other:
		w.refused++
	case aside:
		w.asideRefused++
	}
}
