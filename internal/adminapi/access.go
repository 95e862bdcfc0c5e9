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

// admit finds out who calls, and refuses them unless they have the role.
func (a *api) admit(c *call, needs Role) error {
	if err := a.identify(c); err != nil {
		a.failures.log(a.Logger, c, err)
		return err
	}
	if c.role < needs {
		return problemf(http.StatusForbidden, "%s has the role %s, and this needs %s", c.actor, c.role, needs)
	}
	return nil
}

func (a *api) identify(c *call) error {
	if given := c.Header.Values("Authorization"); len(given) > 0 {
		return a.byToken(c, given)
	}
	if c.byCertificate() {
		return nil
	}
	if !a.Local || !fromHere(c.RemoteAddr) || forwarded(c.Header) {
		return unknown("who are you? Send a token as \"Authorization: Bearer …\": \"sluice token create\" makes one")
	}
	tokens, err := a.Tokens()
	switch {
	case err != nil:
		return away("the tokens are not known yet")
	case len(tokens) > 0:
		return unknown("who are you? Send a token as \"Authorization: Bearer …\"")
	}
	c.actor, c.role = "local", Admin
	return nil
}

func unknown(detail string) *problem { return problemf(http.StatusUnauthorized, "%s", detail) }

// byToken compares with every token, so that the time tells nothing of them.
func (a *api) byToken(c *call, given []string) error {
	scheme, text, _ := strings.Cut(given[0], " ")
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") || text == "" {
		return unknown("write \"Authorization: Bearer \" and the token")
	}
	tokens, err := a.Tokens()
	if err != nil {
		return away("the tokens are not known yet")
	}
	hash := []byte(HashToken(strings.TrimSpace(text)))
	var found *Token
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash, []byte(tokens[i].Hash)) == 1 {
			found = &tokens[i]
		}
	}
	switch {
	case found == nil:
		return unknown("this token is not known")
	case !found.Expires.IsZero() && !found.Expires.After(time.Now()):
		return unknown("this token has expired")
	}
	c.actor, c.role = found.Name, found.Role
	return nil
}

// byCertificate goes by the certificate of the client, which the listener has verified.
func (c *call) byCertificate() bool {
	if c.TLS == nil || len(c.TLS.VerifiedChains) == 0 {
		return false
	}
	subject := c.TLS.PeerCertificates[0].Subject
	for _, unit := range subject.OrganizationalUnit {
		if name, ours := strings.CutPrefix(unit, unitPrefix); ours {
			role, _ := ParseRole(name)
			c.role = max(c.role, role)
		}
	}
	c.actor = "certificate " + subject.CommonName
	return c.role > Nobody
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

func (f *failureLog) log(log logger, c *call, err error) {
	now := time.Now().Unix()
	if last := f.last.Load(); last < now && f.last.CompareAndSwap(last, now) {
		log.Warn("admin API refused a caller", "from", c.RemoteAddr, "reason", err.Error())
	}
}

type logger interface{ Warn(string, ...any) }
