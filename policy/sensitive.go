package policy

import (
	"slices"
	"strings"
	"unicode"

	"github.com/sluicehq/sluice"
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

// names reports whether a host or path has one of words: "sign-in" and "signIn" are "signin",
// and "reset_password" has "password", but "/payload" does not have "pay".
func names(text string, words []string) bool {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '/' || r == '.' || r == ' ' }) {
		pieces := strings.FieldsFunc(camel(part), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if slices.Contains(words, strings.Join(pieces, "")) {
			return true
		}
		for i, piece := range pieces {
			if slices.Contains(words, piece) || i > 0 && slices.Contains(words, pieces[i-1]+piece) {
				return true
			}
		}
	}
	return false
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

// named returns what of the hosts and patterns of a rule has one of words, or "".
func named(hosts []string, match []*pattern, words []string) string {
	for _, p := range match {
		if names(p.text, words) {
			return p.text
		}
	}
	for _, h := range hosts {
		if names(h, words) {
			return h
		}
	}
	return ""
}

// defaultOnError is on_error where a rule does not say it.
func defaultOnError(hosts []string, match []*pattern, shadow bool) sluice.OnError {
	if !shadow && named(hosts, match, closedWords) != "" {
		return sluice.Deny
	}
	return sluice.Allow
}
