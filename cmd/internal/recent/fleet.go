package recent

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Fleet tries changes on the rings of all instances that share a store. An instance posts the changed policy to a
// board. The other instances post the effect on their requests, and the first instance adds up these answers.
type Fleet struct {
	Ring  *Ring
	Board telemetry.Board // nil if this is the only instance
	// Document returns the policy in force.
	Document func() *policy.Document
	Logger   *slog.Logger

	id string // identifies this run of the instance
}

// The parts of the board.
const (
	herePart  = "trial-here" // the instances that answer trials
	askedPart = "trial"      // the changed policies
	triedPart = "tried"      // the answers, by trial and instance
)

const (
	boardFor  = 2 * time.Second // the maximum wait for the board
	postsFor  = 30 * time.Second
	hereEvery = 10 * time.Second
	lookEvery = time.Second            // the interval of looking for trials of other instances
	pollEvery = 200 * time.Millisecond // the interval of looking for answers
	// Other instances must answer within othersFor, and acknowledge within ackFor.
	othersFor = 12 * time.Second
	ackFor    = 4 * time.Second

	gone     = "gone"   // posted by an instance that stops
	ack      = "ack"    // posted by an instance that starts to answer a trial
	maxAsked = 16 << 20 // the maximum size of a decompressed post in bytes
)

// NewFleet returns a Fleet. If board is nil, it uses only its own ring. In this case, the counters are in the
// memory of this process, and were empty when the ring was made.
func NewFleet(ring *Ring, board telemetry.Board, document func() *policy.Document, logger *slog.Logger) *Fleet {
	ring.fresh = board == nil
	return &Fleet{Ring: ring, Board: board, Document: document, Logger: logger, id: rand.Text()}
}

// Run answers the trials of other instances until the context ends.
func (f *Fleet) Run(ctx context.Context) {
	if f.Board == nil {
		return
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	answered := map[string]bool{}
	for here := (time.Time{}); ; {
		if time.Since(here) >= hereEvery && f.post(ctx, herePart, f.id, nil) == nil {
			here = time.Now()
		}
		answered = f.answer(ctx, answered)
		select {
		case <-ctx.Done():
			f.leave(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
		}
	}
}

// leave informs the other instances that this one no longer answers.
func (f *Fleet) leave(ctx context.Context) {
	_ = f.post(ctx, herePart, f.id, []byte(gone)) // after an error, they stop waiting after ackFor
}

func (f *Fleet) post(ctx context.Context, part, instance string, post []byte) error {
	ctx, cancel := context.WithTimeout(ctx, boardFor)
	defer cancel()
	return f.Board.Post(ctx, part, instance, post, postsFor)
}

func (f *Fleet) posted(ctx context.Context, part string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, boardFor)
	defer cancel()
	return f.Board.Posted(ctx, part)
}

// answer answers the posted trials, except those in the set before. It returns the set of all posted trials.
func (f *Fleet) answer(ctx context.Context, before map[string]bool) (now map[string]bool) {
	asked, err := f.posted(ctx, askedPart)
	if err != nil {
		return before
	}
	now = map[string]bool{}
	for name, post := range asked {
		if now[name] = true; before[name] || strings.HasPrefix(name, f.id) || len(post) == 0 {
			continue
		}
		if err := f.answerOne(ctx, name, post); err != nil && ctx.Err() == nil {
			f.Logger.Warn("a trial of another instance cannot be answered", "error", err)
		}
	}
	return now
}

func (f *Fleet) answerOne(ctx context.Context, name string, post []byte) error {
	var would policy.Document
	if err := unpack(post, &would); err != nil {
		return err
	}
	if err := f.post(ctx, triedPart, name+"/"+f.id, []byte(ack)); err != nil {
		return err
	}
	found, err := f.Ring.Try(ctx, f.Document(), &would)
	if err != nil {
		return err
	}
	packed, err := pack(found)
	if err != nil {
		return err
	}
	return f.post(ctx, triedPart, name+"/"+f.id, packed)
}

// Try returns the effect that a changed policy would have had on the last hour's requests to all instances. The
// parameter would is the changed policy.
func (f *Fleet) Try(ctx context.Context, would *policy.Document) (*Trial, error) {
	if f.Board == nil {
		return f.Ring.Try(ctx, f.Document(), would)
	}
	name := f.id + " " + rand.Text()
	others, err := f.ask(ctx, name, would)
	out, failed := f.Ring.Try(ctx, f.Document(), would)
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		f.Logger.Warn("a trial reaches no other instance", "error", err)
		out.Notes = append(out.Notes, "The other instances could not be reached: only the requests of this one were tried.")
		return out, nil
	}
	switch missing := f.gather(ctx, name, others, out); missing {
	case 0:
	case 1:
		out.Notes = append(out.Notes, "1 instance has not answered: its requests are missing.")
	default:
		out.Notes = append(out.Notes, fmt.Sprintf("%d instances have not answered: their requests are missing.", missing))
	}
	if out.Instances > 1 {
		out.Notes = append(out.Notes, "Each instance has tried only its own requests. So limits that instances share deny more than this sum, up to about the upper bound.")
	}
	if len(others) > 0 {
		_ = f.post(context.WithoutCancel(ctx), askedPart, name, nil) // after an error, the post expires
	}
	return out, nil
}

// ask posts a changed policy, and returns the instances from which answers are expected.
func (f *Fleet) ask(ctx context.Context, name string, would *policy.Document) (others map[string]bool, err error) {
	here, err := f.posted(ctx, herePart)
	if err != nil {
		return nil, err
	}
	others = map[string]bool{}
	for id := range here {
		if id != f.id && string(here[id]) != gone {
			others[id] = true
		}
	}
	if len(others) == 0 {
		return others, nil
	}
	inlined := source.Inlined(*would)
	inlined.Answers = nil
	post, err := pack(&inlined)
	if err != nil {
		return nil, err
	}
	return others, f.post(ctx, askedPart, name, post)
}

// gather adds the answers of the other instances, and returns the number of missing answers. It does not wait
// longer than ackFor for instances that have not acknowledged the trial.
func (f *Fleet) gather(ctx context.Context, name string, others map[string]bool, out *Trial) (missing int) {
	missing = len(others)
	began := time.Now()
	for waiting := missing; waiting > 0 && time.Since(began) < othersFor && ctx.Err() == nil; {
		tried, _ := f.posted(ctx, triedPart) // after an error, the next attempt may succeed
		waiting = 0
		for id := range others {
			post := tried[name+"/"+id]
			switch found := (Trial{}); {
			case !others[id]:
			case post == nil && time.Since(began) >= ackFor:
			case post == nil || string(post) == ack:
				waiting++
			case unpack(post, &found) == nil:
				others[id] = false
				out.add(&found)
				missing--
			}
		}
		if waiting > 0 {
			select {
			case <-time.After(pollEvery):
			case <-ctx.Done():
			}
		}
	}
	return missing
}

// add adds the result of another instance.
func (t *Trial) add(o *Trial) {
	if t.From.IsZero() || !o.From.IsZero() && o.From.Before(t.From) {
		t.From = o.From
	}
	if o.To.After(t.To) {
		t.To = o.To
	}
	t.Requests, t.Refused, t.Before, t.After, t.Differs = t.Requests+o.Requests, t.Refused+o.Refused, t.Before+o.Before, t.After+o.After, t.Differs+o.Differs
	t.Change.add(o.Change)
	t.Most.add(o.Most)
	t.Instances += o.Instances
	for i := range o.Rules {
		t.addRule(&o.Rules[i])
	}
	for i := range o.Subjects {
		t.addSubject(&o.Subjects[i])
	}
	t.sortSubjects()
	for _, n := range o.NotJudged {
		if !slices.ContainsFunc(t.NotJudged, func(k replay.NotJudged) bool { return k.Rule == n.Rule }) {
			t.NotJudged = append(t.NotJudged, replay.NotJudged{Rule: line(n.Rule), Needs: line(n.Needs), Why: line(n.Why)})
		}
	}
	for _, note := range o.Notes {
		if note = line(note); !slices.Contains(t.Notes, note) {
			t.Notes = append(t.Notes, note)
		}
	}
}

func (c *Change) add(o Change) { c.Newly, c.Freed = c.Newly+o.Newly, c.Freed+o.Freed }

func (t *Trial) addRule(o *RuleTrial) {
	rule, from := line(o.Rule), line(o.From)
	i := slices.IndexFunc(t.Rules, func(r RuleTrial) bool { return r.Rule == rule && r.From == from })
	if i < 0 {
		t.Rules = append(t.Rules, RuleTrial{Rule: rule, From: from})
		i = len(t.Rules) - 1
	}
	r := &t.Rules[i]
	r.Before, r.After = r.Before+o.Before, r.After+o.After
	r.Change.add(o.Change)
}

func (t *Trial) addSubject(o *SubjectTrial) {
	rule, subject := line(o.Rule), line(o.Subject)
	i := slices.IndexFunc(t.Subjects, func(s SubjectTrial) bool { return s.Rule == rule && s.Subject == subject })
	if i < 0 {
		t.Subjects = append(t.Subjects, SubjectTrial{Rule: rule, Subject: subject})
		i = len(t.Subjects) - 1
	}
	t.Subjects[i].Change.add(o.Change)
}

// line makes a text from the board printable and bounds its length, because other programs may write to the board.
func line(text string) string { return printable.Text(text, 1<<10) }

// pack encodes a value for the board.
func pack(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(text); err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// unpack decodes a post.
func unpack(post []byte, v any) error {
	return json.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(post)), maxAsked)).Decode(v)
}
