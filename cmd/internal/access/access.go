// Package access identifies callers: by a token, by a client certificate, or because they are on this machine. It
// returns each caller as a Caller of package control. The admin API and the console use this package.
package access

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// unitPrefix is the prefix of an organizational unit that names the role of a client certificate, as in
// "sluice-operator".
const unitPrefix = "sluice-"

// Access identifies callers. The field Tokens is required. An Access is safe for concurrent use.
type Access struct {
	// Tokens returns all tokens, including expired ones. If it returns an error, no token is accepted.
	Tokens func() ([]source.TokenRow, error)
	// Local gives callers on this machine all permissions while no token exists, not even an expired one. Set it only
	// if other machines cannot reach the listener's address.
	Local bool
	// Guess limits the attempts of a client to guess a token. The argument client is the remote address with its port.
	// The function check reports whether the token is right or wrong; both results are false while the tokens are
	// unknown. After too many wrong tokens, Guess does not call check, and returns an error with a method RetrySeconds.
	// A nil Guess means no limit.
	Guess func(client, token string, check func() (right, wrong bool)) error
}

// Identify returns the caller of a request: by token, by certificate, or as a caller on this machine. The error is
// a [control.Problem] or the error of Guess.
func (a *Access) Identify(r *http.Request) (control.Caller, error) {
	if given := r.Header.Values("Authorization"); len(given) > 0 {
		scheme, text, _ := strings.Cut(given[0], " ")
		if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return control.Caller{}, unknown("write \"Authorization: Bearer \" and the token")
		}
		return a.SignIn(r.RemoteAddr, text)
	}
	if who := byCertificate(r); who.Role != source.Nobody {
		return who, nil
	}
	if !a.Local || !fromHere(r.RemoteAddr) || forwarded(r.Header) {
		return control.Caller{}, unknown("authentication required: send a token as \"Authorization: Bearer …\" (see \"sluice token create\")")
	}
	tokens, err := a.Tokens()
	switch {
	case err != nil:
		return control.Caller{}, control.Unavailable("the tokens are not loaded yet")
	case len(tokens) > 0:
		return control.Caller{}, unknown("authentication required: send a token as \"Authorization: Bearer …\"")
	}
	return control.Caller{Name: "local", Role: source.Admin}, nil
}

// SignIn returns the caller of a token, or the error of Guess after too many wrong tokens from the client.
func (a *Access) SignIn(client, token string) (who control.Caller, err error) {
	if a.Guess == nil || strings.TrimSpace(token) == "" {
		return a.Holder(token)
	}
	many := a.Guess(client, token, func() (right, wrong bool) {
		who, err = a.Holder(token)
		p := control.AsProblem(err)
		return err == nil, p != nil && p.Status == http.StatusUnauthorized
	})
	if many != nil {
		return control.Caller{}, many
	}
	return who, err
}

// Holder returns the caller of a token. It does not limit guesses: use it only for a token that was accepted before,
// such as the token of a session. Holder compares the token with every known one, so that the time of the comparison
// reveals nothing.
func (a *Access) Holder(token string) (control.Caller, error) {
	if token = strings.TrimSpace(token); token == "" {
		return control.Caller{}, unknown("missing token: create one with \"sluice token create\"")
	}
	tokens, err := a.Tokens()
	if err != nil {
		return control.Caller{}, control.Unavailable("the tokens are not loaded yet")
	}
	hash := source.HashToken(token)
	var found *source.TokenRow
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash[:], tokens[i].Hash[:]) == 1 {
			found = &tokens[i]
		}
	}
	switch {
	case found == nil:
		return control.Caller{}, unknown("unknown token")
	case found.Expired():
		return control.Caller{}, unknown("this token has expired")
	}
	return control.Caller{Name: found.Name, Role: found.Role}, nil
}

func unknown(detail string) *control.Problem {
	return control.Problemf(http.StatusUnauthorized, "%s", detail)
}

// byCertificate returns the caller that the client's certificate names. The listener has verified the certificate.
func byCertificate(r *http.Request) (who control.Caller) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return who
	}
	subject := r.TLS.PeerCertificates[0].Subject
	for _, unit := range subject.OrganizationalUnit {
		if name, ours := strings.CutPrefix(unit, unitPrefix); ours {
			if role, known := source.ParseRole(name); known && role.May(who.Role) {
				who.Role = role
			}
		}
	}
	who.Name = "certificate " + subject.CommonName
	return who
}

// fromHere reports whether the client of a connection is on this machine.
func fromHere(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// forwarded reports whether a proxy has forwarded a request. If so, only the proxy is known to be on this machine;
// the caller may be on another.
func forwarded(h http.Header) bool {
	return slices.ContainsFunc([]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}, func(name string) bool {
		_, set := h[name]
		return set
	})
}
