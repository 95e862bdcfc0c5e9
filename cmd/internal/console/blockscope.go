package console

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policy"
)

// blockScope has the rules under which a subject can be blocked.
type blockScope struct {
	parts  []string // the parts of the subject's key
	same   []string // the rules that count by all of these parts
	others []string // the other rules that can deny requests: those not in shadow mode
	rules  map[string]*policy.Rule
}

const everywhereScope = "everywhere"

func scopeOf(p *control.InForce, ref *subjectRef) *blockScope {
	b := &blockScope{parts: countedParts(ref.Rule), rules: map[string]*policy.Rule{}}
	for i := range p.Document.Rules {
		r := &p.Document.Rules[i]
		b.rules[r.Name] = r
		parts := countedParts(r)
		lacks := slices.ContainsFunc(b.parts, func(part string) bool { return !slices.Contains(parts, part) })
		switch {
		case r.Exempt || r.Block:
		case !lacks && len(parts) > 0:
			b.same = append(b.same, r.Name)
		case !r.Shadow:
			b.others = append(b.others, r.Name)
		}
	}
	return b
}

// whole reports whether a rule denies every request of a subject that it blocks.
func (b *blockScope) whole(name string) bool {
	r := b.rules[name]
	return r != nil && len(matchWords(r)) == 0 && !r.Shadow
}

// field returns a form field for the choice of the rules under which to block, or nothing if there is only one.
func (b *blockScope) field(f url.Values) []field {
	if len(b.same) < 2 {
		return nil
	}
	all := b.everywhere(f)
	return []field{{Name: "where", Label: "Where", Kind: "select", Options: []option{
		{"", "Under this rule only", !all},
		{everywhereScope, fmt.Sprintf("Everywhere: %d rules by %s", len(b.same), strings.Join(b.parts, " and ")), all},
	}}}
}

func (b *blockScope) everywhere(f url.Values) bool {
	return f.Get("where") == everywhereScope && len(b.same) > 1
}

// notes describes the requests that a block does not affect. The parameters are the rules of the block, and the
// reasons why other rules cannot block the subject, by rule.
func (b *blockScope) notes(blocked []string, why map[string]string) (notes []string) {
	if slices.ContainsFunc(blocked, b.whole) {
		return []string{"One of these rules applies to every request, so no request with this key is allowed, unless a rule exempts it."}
	}
	notes = append(notes, "Requests to which "+listWords(blocked)+" does not apply are not blocked.")
	if len(blocked) > 1 {
		notes[0] = "Requests to which none of these rules applies are not blocked: " + listWords(blocked) + "."
	}
	var left []string
	for _, name := range b.same {
		if reason := why[name]; reason != "" {
			left = append(left, name+" ("+reason+")")
		} else if !slices.Contains(blocked, name) {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		notes = append(notes, "Rules with the same key that do not block this subject: "+listWords(left)+".")
	}
	if len(b.others) > 0 {
		notes = append(notes, "Rules with another key count requests of this subject as before: "+listWords(b.others)+".")
	}
	return notes
}

// blockEverywhere offers to block the subject under every rule that counts by all parts of its key.
func (e *effect) blockEverywhere(c *call, ref *subjectRef, scope *blockScope, r control.BlockRequest) error {
	e.Title = "Block everywhere"
	r.Everywhere = true
	key := ref.Key
	would, err := offer(c, e, func(dry bool) (*control.SubjectChange, error) {
		return c.s.Control.Block(c.Context(), c.caller, r, dry)
	}, func(did *control.SubjectChange) undo { return unblockAll(key, did.Blocked) })
	if would == nil {
		return err
	}
	why := map[string]string{}
	for _, open := range would.Open {
		why[open.Rule] = open.Why
	}
	var blocked []string
	for _, b := range would.Blocked {
		blocked = append(blocked, b.Rule)
		before := "counted by its limit"
		if b.Before != nil {
			before = overrideWords(b.Before) + ", " + untilWords(b.Before.Until)
		}
		then := "all denied "
		if r := scope.rules[b.Rule]; r != nil && r.Shadow {
			then = "all would be denied "
			e.Warnings = append(e.Warnings, "The rule "+b.Rule+" is in shadow mode: a block only reports, and requests are still allowed.")
		}
		e.Rows = append(e.Rows, effectRow{b.Rule, before, then + untilWords(r.Until)})
	}
	e.Notes = append(e.Notes, scope.notes(blocked, why)...)
	e.notice = fmt.Sprintf("Blocked %s everywhere, by %s, %s.", printable(ref.Shown), words.Counted(len(blocked), "rule"), untilWords(r.Until))
	return nil
}
