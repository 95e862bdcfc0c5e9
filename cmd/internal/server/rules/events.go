package rules

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// note records an event of the policy for the console.
func (r *Rules) note(kind, text string) {
	if r.recorder != nil {
		r.recorder.Note(kind, text)
	}
}

// noteSwap records that rules have changed. It does not record changes of overrides, which are too frequent.
func (r *Rules) noteSwap(old, p *policy.Policy) {
	if old.Fingerprint() != p.Fingerprint() {
		r.note("reload", "policy loaded: "+changesText(p.Changes(old)))
	}
}

// noteRefused records that a policy was refused, with the first reason.
func (r *Rules) noteRefused(err error) {
	text, _, more := strings.Cut(err.Error(), "\n")
	if more {
		text += " (and more)"
	}
	r.note("refused", text)
}

// noteAccepted records that the configured policy is in force again after it was refused.
func (r *Rules) noteAccepted() { r.note("reload", "the configured policy is active again") }

// maxChanges bounds the changes that are named in a text.
const maxChanges = 5

// changesText names the rules and settings that have changed. Without such a change, a file with a list of networks
// has changed.
func changesText(all []policy.Change) string {
	if len(all) == 0 {
		return "a file of networks changed"
	}
	texts := make([]string, 0, maxChanges+1)
	for _, c := range all[:min(len(all), maxChanges)] {
		texts = append(texts, c.String())
	}
	if more := len(all) - maxChanges; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
