package adminapi

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// unitPrefix begins the organizational unit of a client certificate that names its role, as in
// "sluice-operator".
const unitPrefix = "sluice-"

// admit finds out who calls, and refuses them unless they have the role.
func (a *API) admit(c *call, needs source.Role) error {
	who, inside := insider(c.Context())
	if !inside {
		var err error
		if who, err = a.identify(c.Request); err != nil {
			a.failures.log(a.Logger, c.Request, err)
			return err
		}
	}
	c.actor, c.role = who.Name, who.Role
	if !c.role.May(needs) {
		return problemf(http.StatusForbidden, "%s has the role %s, and this needs %s", c.actor, c.role, needs)
	}
	return nil
}

// Identify returns who has sent a request, as an operation would take it: by token, by certificate,
// or by being on this machine. The error says what is missing.
func (a *API) Identify(r *http.Request) (control.Caller, error) { return a.identify(r) }

// SignIn returns whose token that is. The caller limits guesses: as [Config].Guess does.
func (a *API) SignIn(token string) (control.Caller, error) { return a.byToken(token) }

// try looks at a token, unless too many from that address were wrong.
func (a *API) try(from, token string) (who control.Caller, err error) {
	if a.Guess == nil || strings.TrimSpace(token) == "" {
		return a.byToken(token)
	}
	many := a.Guess(from, token, func() (right, wrong bool) {
		who, err = a.byToken(token)
		p := asProblem(err)
		return err == nil, p != nil && p.Status == http.StatusUnauthorized
	})
	if many != nil {
		return control.Caller{}, many
	}
	return who, err
}

func (a *API) identify(r *http.Request) (control.Caller, error) {
	if given := r.Header.Values("Authorization"); len(given) > 0 {
		scheme, text, _ := strings.Cut(given[0], " ")
		if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return control.Caller{}, unknown("write \"Authorization: Bearer \" and the token")
		}
		return a.try(r.RemoteAddr, text)
	}
	if who := byCertificate(r); who.Role != source.Nobody {
		return who, nil
	}
	if !a.Local || !fromHere(r.RemoteAddr) || forwarded(r.Header) {
		return control.Caller{}, unknown("who are you? Send a token as \"Authorization: Bearer …\": \"sluice token create\" makes one")
	}
	tokens, err := a.Tokens()
	switch {
	case err != nil:
		return control.Caller{}, away("the tokens are not known yet")
	case len(tokens) > 0:
		return control.Caller{}, unknown("who are you? Send a token as \"Authorization: Bearer …\"")
	}
	return control.Caller{Name: "local", Role: source.Admin}, nil
}

func unknown(detail string) *problem { return problemf(http.StatusUnauthorized, "%s", detail) }

// byToken compares with every token, so that the time tells nothing of them.
func (a *API) byToken(text string) (control.Caller, error) {
	if text = strings.TrimSpace(text); text == "" {
		return control.Caller{}, unknown("which token? \"sluice token create\" makes one")
	}
	tokens, err := a.Tokens()
	if err != nil {
		return control.Caller{}, away("the tokens are not known yet")
	}
	hash := []byte(control.HashToken(text))
	var found *control.Token
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash, []byte(tokens[i].Hash)) == 1 {
			found = &tokens[i]
		}
	}
	switch {
	case found == nil:
		return control.Caller{}, unknown("this token is not known")
	case !found.Expires.IsZero() && !found.Expires.After(time.Now()):
		return control.Caller{}, unknown("this token has expired")
	}
	return control.Caller{Name: found.Name, Role: found.Role}, nil
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

// forwarded reports whether a request says that a proxy has passed it on: then it is the proxy that
// is on this machine, and nobody knows where the caller is.
func forwarded(h http.Header) bool {
	return slices.ContainsFunc([]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}, func(name string) bool {
		_, says := h[name]
		return says
	})
}

// sameOrigin refuses what a page of another origin has a browser send, reads too.
func sameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		foreign := site != "" && site != "same-origin" && site != "none"
		if origin := r.Header.Get("Origin"); origin != "" {
			u, err := url.Parse(origin)
			foreign = foreign || err != nil || !strings.EqualFold(u.Host, r.Host)
		}
		if foreign {
			write(w, http.StatusForbidden, "application/problem+json", problemf(http.StatusForbidden, "a page of another origin cannot use this API"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// failureLog logs callers that are not known, one a second, so that they cannot fill a disk.
type failureLog struct{ last atomic.Int64 }

func (f *failureLog) log(log logger, r *http.Request, err error) {
	now := time.Now().Unix()
	if last := f.last.Load(); last < now && f.last.CompareAndSwap(last, now) {
		log.Warn("admin API refused a caller", "from", r.RemoteAddr, "reason", err.Error())
	}
}

type logger interface{ Warn(string, ...any) }
