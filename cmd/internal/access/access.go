// Package access identifies callers: by a token, by a client certificate, or because they are on this machine. It
// returns callers of package control, which is below it. The admin API and the console are above.
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

// unitPrefix begins the organizational unit of a client certificate that names its role, as in
// "sluice-operator".
const unitPrefix = "sluice-"

// Access identifies callers. Tokens is needed. It is safe for concurrent use.
type Access struct {
	// Tokens returns the tokens that are valid. An error means that they are not known now: then no token is
	// accepted.
	Tokens func() ([]source.TokenRow, error)
	// Local gives callers on this machine all permissions while no token exists. It is for an address that only
	// this machine reaches.
	Local bool
	// Guess calls look, which looks at a token that comes from an address with a port and is neither
	// right nor wrong while the tokens are unknown. After too many wrong ones it returns an error instead, which
	// has a method RetrySeconds. Nil: they are not limited.
	Guess func(from, token string, look func() (right, wrong bool)) error
}

// Identify returns the caller of a request: by token, by certificate, or as a caller on this machine. The error is
// a [control.Problem] about missing credentials, or that of Guess.
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

// SignIn returns the caller of a token, unless too many tokens from that address were wrong: then the error is that
// of Guess.
func (a *Access) SignIn(from, token string) (who control.Caller, err error) {
	if a.Guess == nil || strings.TrimSpace(token) == "" {
		return a.Holder(token)
	}
	many := a.Guess(from, token, func() (right, wrong bool) {
		who, err = a.Holder(token)
		p := control.AsProblem(err)
		return err == nil, p != nil && p.Status == http.StatusUnauthorized
	})
	if many != nil {
		return control.Caller{}, many
	}
	return who, err
}

// Holder returns the caller of a token. It is for tokens that were right before, as in a session: it does not limit
// guesses. It compares with every token, so that the time reveals none of them.
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

// byCertificate goes by the certificate of the client, which the listener has verified.
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

// fromHere reports whether the other end of a connection is on this machine.
func fromHere(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// forwarded reports whether a proxy has forwarded a request. Then only the proxy is known to be on this machine,
// and not the caller.
func forwarded(h http.Header) bool {
	return slices.ContainsFunc([]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}, func(name string) bool {
		_, says := h[name]
		return says
	})
}
