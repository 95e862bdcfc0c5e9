// Package words finds words in hosts and paths.
package words

import (
	"slices"
	"strings"
	"unicode"
)

// These words in hosts and paths suggest that clients can guess secrets there, or pay.
var (
	// Closed has words for which a rule denies by default while the store is unavailable.
	Closed = []string{"login", "logon", "signin", "password", "passwords", "passwd", "pay", "payment", "payments", "checkout"}
	// Careful has words for which a rule gets a warning if it allows all requests while the store is unavailable.
	Careful = []string{
		"signup", "register", "registration", "reset", "forgot", "recover", "recovery", "otp", "mfa", "2fa", "totp", "verify",
		"auth", "oauth", "oauth2", "token", "tokens", "session", "sessions",
		"billing", "charge", "charges", "refund", "refunds", "transfer", "transfers", "withdraw", "withdrawal", "withdrawals", "purchase", "purchases",
	}
)

// Of returns the word of the list that a host or path contains, or "". "sign-in" and "signIn" contain "signin", and
// "reset_password" contains "password", but "/payload" does not contain "pay".
func Of(text string, words []string) string {
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

// camel separates the words of a text such as "signInPage": "sign-in-page".
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
