package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/internal/bytesize"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// ErrBodyMemory is the error that Body of a [Request] returns if the bodies of other requests take up the memory
// for bodies. The request is denied with status 503 if a rule goes by its body.
var ErrBodyMemory = parts.ErrBodyMemory

// ErrBodyPart is the error that Body of a [Request] returns if only a part of the body reached the integration, or if
// that cannot be known. The request is denied with status 413 if a rule goes by its body.
var ErrBodyPart = parts.ErrBodyPart

// TooLarge reports whether a request is denied because its body is larger than the policy's body_limit, or because
// of [ErrBodyPart].
func (d *Decision) TooLarge() bool {
	return d.Missing == parts.WholeBody || d.BodyLimit() != ""
}

// BodyLimit returns the policy's body_limit, such as "8MiB", if the request is denied because its body is larger. It is
// empty for all other decisions.
func (d *Decision) BodyLimit() (size string) {
	size, ok := strings.CutPrefix(d.Missing, parts.SmallerBody)
	if !ok {
		return ""
	}
	return size
}

// NoBodyMemory reports whether a request is denied because of [ErrBodyMemory].
func (d *Decision) NoBodyMemory() bool { return d.Missing == parts.BodyMemory }

// Mismatched returns the name of a header field, such as Mcp-Method, if the request is denied because the field
// differs from the field of the body that it repeats. It is empty for all other decisions.
func (d *Decision) Mismatched() (header string) {
	header, ok := strings.CutPrefix(d.Missing, parts.MatchingHeader)
	if !ok {
		return ""
	}
	return header
}

// maxBodyLimit is the largest body_limit, in bytes.
const maxBodyLimit = 256 << 20

func (c *compiler) bodyLimit(text string) int64 {
	if text == "" {
		return parts.DefaultBodyLimit
	}
	n, err := bytesize.Parse(text)
	switch {
	case err != nil:
		c.fail("body_limit", err.Error(), "body_limit is %s, which is not a size", spelling.Quote(text))
	case n < 1 || n > maxBodyLimit:
		c.fail("body_limit", "use a size from 1 to "+bytesize.Text(maxBodyLimit), "body_limit is %s", bytesize.Text(n))
	}
	return n
}

// bodyCondition is a value that a field of the body must have, or its beginning.
type bodyCondition struct {
	part   parts.Part
	value  string
	prefix bool // value is a prefix; an empty one matches any value
}

func (c *compiler) bodies(values map[string]string) (all []bodyCondition) {
	for _, name := range sortedKeys(values) {
		field := "body[" + strconv.Quote(name) + "]"
		p, err := parts.Parse("body:" + name)
		if err != nil {
			c.fail(field, `write it as in "body: {model: gpt-*}"`, "%s is not the name of a field of a body", spelling.Quote(name))
			continue
		}
		text, prefix := strings.CutSuffix(values[name], "*")
		b := bodyCondition{p, p.Canonical(text), prefix}
		if b.value == "" && values[name] != "*" {
			c.fail(field, `write a value, or "*" for any`, "the field %s is empty", spelling.Quote(name))
		}
		all = append(all, b)
	}
	return all
}

// verdict is whether a request meets a condition on its body.
type verdict uint8

const (
	meets    verdict = iota
	fails            // certainly not
	doubtful         // servers may read the field in several ways, or the body could not be read
)

func (b *bodyCondition) check(x *parts.Reader) verdict {
	value, found := b.part.Value(x)
	switch {
	case !found && x.Garbled:
		return doubtful
	case !found, b.prefix && !strings.HasPrefix(value, b.value), !b.prefix && value != b.value:
		return fails
	}
	return meets
}

// checkBody returns the first condition on the body that the request does not meet, or else the first that is
// doubtful, or nil.
func (r *rule) checkBody(in *input) (*bodyCondition, verdict) {
	var doubt *bodyCondition
	for i := range r.bodies {
		switch b := &r.bodies[i]; b.check(&in.x) {
		case fails:
			return b, fails
		case doubtful:
			if doubt == nil {
				doubt = b
			}
		}
	}
	if doubt != nil {
		return doubt, doubtful
	}
	return nil, meets
}

// meetsBody reports whether a rule that exempts or blocks applies by its conditions on the body. A doubtful body
// is blocked and not exempt. One that could not be read denies the request otherwise.
func (w *work) meetsBody(r *rule) bool {
	b, v := r.checkBody(&w.input)
	if v == doubtful && r.block && w.x.BodyFault() != "" {
		w.lacks(r, b)
		return false
	}
	return v == meets || v == doubtful && r.block
}

// matchBodies drops the rules with a condition on the body that the request does not meet. It reads the body only for
// such conditions.
func (w *work) matchBodies() {
	if !w.policy.readsBody {
		return
	}
	w.matches.rules = slices.DeleteFunc(w.matches.rules, func(m matched) bool {
		b, v := m.rule.checkBody(&w.input)
		if v == doubtful && (w.x.BodyFault() != "" || m.rule.strict && !w.x.BrokeOff) {
			w.lacks(m.rule, b)
		}
		return v == fails
	})
}

// lacks notes that a rule denies the request for a doubtful condition on its body, if the rule denies at all.
func (w *work) lacks(r *rule, b *bodyCondition) {
	l := w.lackOf(&b.part)
	switch {
	case !r.isLenient() && w.matches.lack.part == "":
		w.matches.lack = l
	case r.isLenient() && w.subjects.pardoned.part == "":
		w.subjects.pardoned = l
	}
}

// lackOf returns the lack of a part that has no value.
func (in *input) lackOf(p *parts.Part) lack {
	if fault := in.x.BodyFault(); fault != "" && p.ReadsBody() {
		return lack{part: fault}
	}
	return lack{p.String(), in.x.Garbled}
}

// unreadable returns why a request with a body that no rule can read is denied, or "".
func (w *work) unreadable() string {
	fault := w.x.BodyFault()
	if fault == "" || !slices.ContainsFunc(w.matches.rules, func(m matched) bool { return m.rule.readsBody && !m.rule.isLenient() }) {
		return ""
	}
	return fault
}

// whyNot explains that the request does not meet the condition.
func (b *bodyCondition) whyNot() string {
	return fmt.Sprintf("the field %s of the body is missing or has another value", spelling.Quote(strings.TrimPrefix(b.part.String(), "body:")))
}
