package adminapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Role is what a caller may do: each may do what those before it may.
type Role int

const (
	Nobody   Role = iota
	Viewer        // reads everything
	Operator      // also overrides, who is in which tier, reset, refund and block
	Admin         // also rules and tiers
)

var roleNames = []string{Nobody: "nobody", Viewer: "viewer", Operator: "operator", Admin: "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole returns the role of that name: viewer, operator or admin.
func ParseRole(name string) (Role, bool) {
	for r := Viewer; r <= Admin; r++ {
		if r.String() == name {
			return r, true
		}
	}
	return Nobody, false
}

// Token lets whoever has it call. Only its hash is kept.
type Token struct {
	Name    string // who is told to have made a change
	Hash    string // see [HashToken]
	Role    Role
	Expires time.Time // never if zero
}

// HashToken returns the SHA-256 of a token in hexadecimal. Tokens are long and random, so that
// nothing slower is needed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// unitPrefix begins the organizational unit of a client certificate that names its role, as in
// "sluice-operator".
const unitPrefix = "sluice-"

// caller is who calls.
type caller struct {
	name string
	role Role
}

// admit finds out who calls, and refuses them unless they have the role.
func (a *API) admit(c *call, needs Role) error {
	who, inside := insider(c.Context())
	if !inside {
		var err error
		if who, err = a.identify(c.Request); err != nil {
			a.failures.log(a.Logger, c.Request, err)
			return err
		}
	}
	c.actor, c.role = who.name, who.role
	if c.role < needs {
		return problemf(http.StatusForbidden, "%s has the role %s, and this needs %s", c.actor, c.role, needs)
	}
	return nil
}

// Identify returns who has sent a request, as an operation would take it: by token, by certificate,
// or by being on this machine. The error says what is missing.
func (a *API) Identify(r *http.Request) (name string, role Role, err error) {
	who, err := a.identify(r)
	return who.name, who.role, err
}

// SignIn returns whose token that is. The caller limits guesses: as [Config].Guess does.
func (a *API) SignIn(token string) (name string, role Role, err error) {
	who, err := a.byToken(token)
	return who.name, who.role, err
}

// try looks at a token, unless too many from that address were wrong.
func (a *API) try(from, token string) (who caller, err error) {
	if a.Guess == nil || strings.TrimSpace(token) == "" {
		return a.byToken(token)
	}
	many := a.Guess(from, token, func() (right, wrong bool) {
		who, err = a.byToken(token)
		p := asProblem(err)
		return err == nil, p != nil && p.Status == http.StatusUnauthorized
	})
	if many != nil {
		return caller{}, many
	}
	return who, err
}

func (a *API) identify(r *http.Request) (caller, error) {
	if given := r.Header.Values("Authorization"); len(given) > 0 {
		scheme, text, _ := strings.Cut(given[0], " ")
		if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return caller{}, unknown("write \"Authorization: Bearer \" and the token")
		}
		return a.try(r.RemoteAddr, text)
	}
	if who := byCertificate(r); who.role > Nobody {
		return who, nil
	}
	if !a.Local || !fromHere(r.RemoteAddr) || forwarded(r.Header) {
		return caller{}, unknown("who are you? Send a token as \"Authorization: Bearer …\": \"sluice token create\" makes one")
	}
	tokens, err := a.Tokens()
	switch {
	case err != nil:
		return caller{}, away("the tokens are not known yet")
	case len(tokens) > 0:
		return caller{}, unknown("who are you? Send a token as \"Authorization: Bearer …\"")
	}
	return caller{"local", Admin}, nil
}

func unknown(detail string) *problem { return problemf(http.StatusUnauthorized, "%s", detail) }

// byToken compares with every token, so that the time tells nothing of them.
func (a *API) byToken(text string) (caller, error) {
	if text = strings.TrimSpace(text); text == "" {
		return caller{}, unknown("which token? \"sluice token create\" makes one")
	}
	tokens, err := a.Tokens()
	if err != nil {
		return caller{}, away("the tokens are not known yet")
	}
	hash := []byte(HashToken(text))
	var found *Token
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash, []byte(tokens[i].Hash)) == 1 {
			found = &tokens[i]
		}
	}
	switch {
	case found == nil:
		return caller{}, unknown("this token is not known")
	case !found.Expires.IsZero() && !found.Expires.After(time.Now()):
		return caller{}, unknown("this token has expired")
	}
	return caller{found.Name, found.Role}, nil
}

// byCertificate goes by the certificate of the client, which the listener has verified.
func byCertificate(r *http.Request) (who caller) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return who
	}
	subject := r.TLS.PeerCertificates[0].Subject
	for _, unit := range subject.OrganizationalUnit {
		if name, ours := strings.CutPrefix(unit, unitPrefix); ours {
			role, _ := ParseRole(name)
			who.role = max(who.role, role)
		}
	}
	who.name = "certificate " + subject.CommonName
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
