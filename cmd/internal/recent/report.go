package recent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/words"
)

// maxReported bounds the subjects of a Trial.
const maxReported = 20

// report stores the result of a pass in a Trial.
func (p *pass) report(out *Trial) {
	out.Requests, out.Refused, out.Differs, out.Change = p.requests, p.refused, p.differs, p.change
	out.Most = p.most()
	out.Before, out.After = p.sides[0].denied, p.sides[1].denied
	if p.from != 0 {
		out.From, out.To = time.UnixMicro(p.from).UTC(), time.UnixMicro(p.to).UTC()
	}
	for _, r := range p.rules {
		out.Rules = append(out.Rules, *r)
	}
	slices.SortFunc(out.Rules, func(a, b RuleTrial) int {
		return cmp.Or(cmp.Compare(p.order[a.Rule], p.order[b.Rule]), cmp.Compare(a.From, b.From))
	})
	for _, s := range p.subjects {
		out.Subjects = append(out.Subjects, *s)
	}
	out.sortSubjects()
	out.Notes = append(out.Notes, p.notes()...)
}

// most returns Trial.Most.
func (p *pass) most() Change {
	if p.exact || p.trial.fresh && p.differs == 0 {
		return p.change
	}
	most := p.change
	for _, c := range [...]Change{p.bounds[0], p.bounds[1], {min(p.full.Newly, p.requests-p.refused), min(p.full.Freed, p.refused)}} {
		most = Change{max(most.Newly, c.Newly), max(most.Freed, c.Freed)}
	}
	return most
}

// sortSubjects sorts the subjects by the number of changed decisions, the largest first, and keeps at most
// maxReported.
func (t *Trial) sortSubjects() {
	slices.SortFunc(t.Subjects, func(a, b SubjectTrial) int {
		return cmp.Or(cmp.Compare(b.Newly+b.Freed, a.Newly+a.Freed), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject))
	})
	t.Subjects = slices.Clip(t.Subjects[:min(len(t.Subjects), maxReported)])
}

func (p *pass) notes() (notes []string) {
	if p.blind > 0 {
		notes = append(notes, fmt.Sprintf("Denied before a rule could read a field of the body or the response: %s. In the trial, a rule that reads such a field does not count these requests, and a rule that counts by outcome counts them as if they had no response.", words.Counted(p.blind, "request")))
	}
	if p.early {
		notes = append(notes, fmt.Sprintf("The trial ended after %v, before the last request.", maxTime))
	}
	evicted := int64(0)
	for _, s := range p.sides {
		evicted += int64(s.store.Losses().Evicted)
	}
	if evicted > 0 {
		notes = append(notes, fmt.Sprintf("The trial had no memory for %s: a few denials may be missing.", words.Counted(evicted, "counter")))
	}
	if len(p.subjects) >= maxSubjects {
		notes = append(notes, fmt.Sprintf("The change affects more than %s subjects: some of those with the most changes may be missing.", humanize.Comma(maxSubjects)))
	}
	return notes
}
