package recommend

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policyfile"
)

// WriteYAML writes the policy, with the evidence in comments.
func (r *Result) WriteYAML(w io.Writer) error {
	doc := r.Document
	text, err := policyfile.Encode("recommended.yaml", doc)
	if err != nil {
		return err
	}
	b := &strings.Builder{}
	comment := func(indent, format string, args ...any) {
		b.WriteString(words.Comment(indent, fmt.Sprintf(format, args...)))
	}
	comment("", "Recommended from %s, %s to %s: %s, by %s.", words.Counted(r.Requests, "request"), r.From.Format("2006-01-02 15:04"), r.To.Format("2006-01-02 15:04 MST"), words.Span(r.To.Sub(r.From)), r.Key)
	comment("", "Each rule denies at most %s of the subjects and of the requests, with %s confidence.", r.Share, r.Confidence)
	comment("", "All rules are in shadow mode: they deny nothing until \"shadow: true\" is removed.")
	for _, n := range r.Notes {
		comment("", "%s", n)
	}
	if r.Replay != nil {
		comment("", "%s", r.Replay.total(len(r.Aside) > 0))
	}
	if len(r.Aside) > 0 {
		comment("", "Left out, because they look like abuse: %s with %s of the requests:", words.Counted(len(r.Aside), "subject"), ratio(r.asideRequests(), r.Requests))
		for i, a := range r.Aside {
			if i == 20 {
				comment("", "  and %d more", len(r.Aside)-i)
				break
			}
			comment("", "  %s: %s, %s", a.Key, words.Counted(a.Requests, "request"), a.Why)
		}
	}
	if few := r.few(); few != "" {
		comment("", "No limit for %s: too few subjects.", few)
	}
	evidence := map[string]string{}
	for i := range r.Rules {
		text := ""
		r.Rules[i].evidence(r, func(format string, args ...any) { text += words.Comment("  ", fmt.Sprintf(format, args...)) })
		evidence[r.Rules[i].Name] = text
	}
	comments := make([]string, len(doc.Rules))
	for i := range doc.Rules {
		comments[i] = evidence[doc.Rules[i].Name]
	}
	b.WriteString(words.CommentRules(text, comments))
	_, err = io.WriteString(w, b.String())
	return err
}

func (r *Rule) evidence(out *Result, comment func(format string, args ...any)) {
	for _, line := range r.promise(out) {
		comment("%s", line)
	}
	comment("Bursts that a share of the subjects does not exceed: %s. The least burst for the promise, %s, was rounded up. A subject is allowed at most %.0f%s in %s.", r.bursts(), humanize.Comma(r.Exact), r.Harm, out.unit(), out.Window)
	if r.WithAside > 0 {
		comment("With the subjects that look like abuse, the burst would be %s.", humanize.Comma(r.WithAside))
	}
	if r.Convention != nil {
		comment("Rule of thumb: %s.", r.Convention.words(out.Window))
	}
	within := 0
	for _, f := range r.Forward {
		if f.Within {
			within++
		}
	}
	if len(r.Forward) > 0 {
		comment("In trials with limits learned from the days before, the promise was kept within a factor of two on %d of %s.", within, words.Counted(len(r.Forward), "day"))
	}
}
