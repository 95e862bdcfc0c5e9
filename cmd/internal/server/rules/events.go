package rules

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// note records what happened to the policy, for the console.
func (r *Rules) note(kind, text string) {
	if r.recorder != nil {
		r.recorder.Note(kind, text)
	}
}

// noteSwap records that rules have changed. Overrides change too often to be recorded.
func (r *Rules) noteSwap(old, p *policy.Policy) {
	if old.Fingerprint() != p.Fingerprint() {
		r.note("reload", "policy loaded: "+changesText(p.Changes(old)))
	}
}

// noteRefused records the first reason why a policy was refused.
func (r *Rules) noteRefused(err error) {
	text, _, more := strings.Cut(err.Error(), "\n")
	if more {
		text += " (and more)"
	}
	r.note("refused", text)
}

// noteAccepted records that the configured policy is in force again, after it was refused.
func (r *Rules) noteAccepted() { r.note("reload", "the configured policy is active again") }

// maxChanges bounds the changes in a text.
const maxChanges = 5

// changesText names the rules and settings that differ. If none differs, only the file of a list of networks has
// changed.
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
