package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// Words of hosts and paths behind which guessing or paying is done: those that stay closed
// while nobody counts unless the rule says otherwise, and those where that is worth a thought.
var (
	closedWords  = []string{"login", "logon", "signin", "password", "passwords", "passwd", "pay", "payment", "payments", "checkout"}
	carefulWords = []string{
		"signup", "register", "registration", "reset", "forgot", "recover", "recovery", "otp", "mfa", "2fa", "totp", "verify",
		"auth", "oauth", "oauth2", "token", "tokens", "session", "sessions",
		"billing", "charge", "charges", "refund", "refunds", "transfer", "transfers", "withdraw", "withdrawal", "withdrawals", "purchase", "purchases",
	}
)

// wordOf returns which of words a host or path has, or "": "sign-in" and "signIn" are "signin",
// and "reset_password" has "password", but "/payload" does not have "pay".
func wordOf(text string, words []string) string {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '/' || r == '.' || r == ' ' }) {
		pieces := strings.FieldsFunc(camel(part), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if whole := strings.Join(pieces, ""); slices.Contains(words, whole) {
			return whole
		}
		for i, piece := range pieces {
			if slices.Contains(words, piece) {
				return piece
			}
			if i > 0 && slices.Contains(words, pieces[i-1]+piece) {
				return pieces[i-1] + piece
			}
		}
	}
	return ""
}

// camel writes "signInPage" as "sign-in-page".
func camel(text string) string {
	var b strings.Builder
	lower := false
	for _, r := range text {
		if lower && unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// named returns what of the hosts and patterns of a rule has one of words, and which, or "".
func named(hosts []string, match []*pattern.Pattern, words []string) (text, word string) {
	for _, p := range match {
		if word := wordOf(p.Text, words); word != "" {
			return p.Text, word
		}
	}
	for _, h := range hosts {
		if word := wordOf(h, words); word != "" {
			return h, word
		}
	}
	return "", ""
}

// defaultOnError is on_error where a rule does not say it.
func defaultOnError(hosts []string, match []*pattern.Pattern, shadow bool) sluice.OnError {
	if _, word := named(hosts, match, closedWords); word != "" && !shadow {
		return sluice.Deny
	}
	return sluice.Allow
}

// Outage is what a rule does while the shared store does not answer.
type Outage struct {
	Rule    string
	OnError sluice.OnError
	// Why says what that follows from: "it says so", or "by default", with the word that closes
	// the rule if one does.
	Why string
}

// Outages tells of every rule, in the order of the document, what an outage makes of it. A default
// follows from the words in match and hosts, so another path can be another default: compare
// the two, or write on_error.
func (p *Policy) Outages() []Outage {
	all := make([]Outage, len(p.rules))
	for i := range p.rules {
		r := &p.rules[i]
		all[i] = Outage{r.name, r.onError, "by default"}
		text, word := named(r.hosts, r.match, closedWords)
		switch o := &all[i]; {
		case r.exempt:
			o.Why = "it exempts"
		case r.block:
			o.OnError, o.Why = sluice.Deny, "it blocks"
		case r.shadow:
			o.OnError, o.Why = sluice.Allow, "a shadow never refuses"
		case r.marks:
			o.Why = "it marks, and never refuses"
		case !r.byDefault:
			o.Why = "it says so"
		case r.onError == sluice.Deny:
			o.Why = fmt.Sprintf("by default, since %s names %q", spelling.Quote(text), word)
		}
	}
	return all
}
