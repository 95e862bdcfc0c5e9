package telemetry

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
)

// FoundRefusals has the denials of one request that the instances keep.
type FoundRefusals struct {
	Refusals []Refusal // the latest first
	Kept     int       // number of denials kept, of all requests
	Since    time.Time // time of the oldest kept denial; zero if none is kept
	// Err is the reason why denials of other instances are missing.
	Err error
}

const (
	refusalsPart = "refusals" // the latest denials of an instance
	refusalsFor  = time.Hour
	// An instance posts as many of its latest denials as fit into these sizes, before and after compression.
	maxRefusalsText = 1 << 20
	maxRefusalsPost = 192 << 10
)

// FindRefusals returns the kept denials of a request, from all instances. The parameter id is the ID of the request
// or of its trace. A denial reaches the other instances after some seconds. Each instance shares only its latest
// denials, about a thousand.
func (f *Fleet) FindRefusals(ctx context.Context, id string) (found FoundRefusals) {
	if f.Refusals == nil {
		return found
	}
	found.Refusals = f.Refusals.Find(id)
	found.Kept, found.Since = f.Refusals.Kept()
	name := f.Recorder.config.Instance
	for i := range found.Refusals {
		found.Refusals[i].Instance = name
	}
	if f.Board == nil {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, boardFor)
	defer cancel()
	posted, err := f.Board.Posted(ctx, refusalsPart)
	if found.Err = err; err != nil {
		return found
	}
	id = printable.Text(id, 64)
	for instance, post := range posted {
		if instance != f.Recorder.id {
			found.add(readRefusals(post), id)
		}
	}
	slices.SortStableFunc(found.Refusals, func(a, b Refusal) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Instance, b.Instance)) })
	return found
}

// add adds the denials of another instance.
func (f *FoundRefusals) add(all []Refusal, id string) {
	f.Kept += len(all)
	for i := range all {
		if r := &all[i]; f.Since.IsZero() || r.At.Before(f.Since) {
			f.Since = r.At
		}
		if r := &all[i]; r.isOf(id) {
			r.clean()
			f.Refusals = append(f.Refusals, *r)
		}
	}
}

// clean makes the texts of a denial from the board printable and cuts them.
func (r *Refusal) clean() {
	for _, text := range []*string{
		&r.Rule, &r.Limit, &r.LimitName, &r.From, &r.Because, &r.Class, &r.Missing, &r.Subject, &r.SubjectID, &r.Address, &r.Door, &r.Method, &r.Host, &r.Path,
		&r.RequestID, &r.TraceID, &r.Brought, &r.Instance,
	} {
		*text = printable.Text(*text, maxName)
	}
}

// postRefusals posts the latest denials if there are new ones, or the last post is about to expire.
func (f *Fleet) postRefusals(ctx context.Context) (posted int, err error) {
	if f.Refusals == nil {
		return 0, nil
	}
	now := time.Now()
	all, kept := f.Refusals.latest()
	if len(all) == 0 || kept == f.refusals && now.Sub(f.refusalsAt) < refusalsFor/2 {
		return 0, nil
	}
	post := writeRefusals(all, f.Recorder.config.Instance)
	if err := f.Board.Post(ctx, refusalsPart, f.Recorder.id, post, refusalsFor); err != nil {
		return 0, err
	}
	f.refusals, f.refusalsAt = kept, now
	return len(post), nil
}

// latest returns the kept denials, the latest first, and how many have ever been kept.
func (k *Refusals) latest() (all []*Refusal, ever uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all = slices.Clone(k.kept)
	slices.Reverse(all)
	return all, k.ever
}

// writeRefusals returns as many of the denials as fit.
func writeRefusals(all []*Refusal, instance string) []byte {
	var texts [][]byte
	size := 0
	for _, r := range all {
		posted := *r
		posted.Instance = instance
		text, err := json.Marshal(&posted)
		if size += len(text) + 1; err != nil || size > maxRefusalsText {
			break
		}
		texts = append(texts, text)
	}
	for {
		var post bytes.Buffer
		w, _ := flate.NewWriter(&post, flate.BestSpeed) // a valid level
		for _, text := range texts {
			_, _ = w.Write(append(text, '\n')) // writing to a buffer never fails
		}
		_ = w.Close()
		if post.Len() <= maxRefusalsPost || len(texts) == 0 {
			return post.Bytes()
		}
		texts = texts[:len(texts)/2]
	}
}

// readRefusals returns the denials of a post, up to the first error.
func readRefusals(post []byte) (all []Refusal) {
	if len(post) > maxRefusalsPost {
		return nil
	}
	d := json.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(post)), maxRefusalsText))
	for len(all) < maxKept {
		var r Refusal
		if d.Decode(&r) != nil {
			return all
		}
		all = append(all, r)
	}
	return all
}
