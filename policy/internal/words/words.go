// Package words finds words in hosts and paths.
package words

import (
	"slices"
	"strings"
	"unicode"
)

// Words in hosts and paths at which clients can guess secrets, or pay.
var (
	// Closed are words of rules that deny by default while the store does not answer.
	Closed = []string{"login", "logon", "signin", "password", "passwords", "passwd", "pay", "payment", "payments", "checkout"}
	// Careful are words of rules that get a warning if they do not deny then.
	Careful = []string{
		"signup", "register", "registration", "reset", "forgot", "recover", "recovery", "otp", "mfa", "2fa", "totp", "verify",
		"auth", "oauth", "oauth2", "token", "tokens", "session", "sessions",
		"billing", "charge", "charges", "refund", "refunds", "transfer", "transfers", "withdraw", "withdrawal", "withdrawals", "purchase", "purchases",
	}
)

// Of returns which of words a host or path has, or "": "sign-in" and "signIn" are "signin",
// and "reset_password" has "password", but "/payload" does not have "pay".
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
