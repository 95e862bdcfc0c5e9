package server

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/telemetry"
)

// upstreams is a flag with upstreams for hosts, such as "api.example.com=http://localhost:3000". An upstream
// without a host is for all other hosts.
type upstreams struct {
	others upstream
	hosts  map[string]upstream
}

func (u *upstreams) Type() string   { return "[host=]URL" }
func (u *upstreams) any() bool      { return u.others.url != nil || len(u.hosts) > 0 }
func (u *upstreams) isSample() bool { return slices.ContainsFunc(u.all(), upstream.isSample) }

// all returns all upstreams. Several may have the same URL.
func (u *upstreams) all() (all []upstream) {
	if u.others.url != nil {
		all = append(all, u.others)
	}
	for _, host := range slices.Sorted(maps.Keys(u.hosts)) {
		all = append(all, u.hosts[host])
	}
	return all
}

func (u *upstreams) String() string {
	var texts []string
	if u.others.url != nil {
		texts = append(texts, u.others.String())
	}
	for _, host := range slices.Sorted(maps.Keys(u.hosts)) {
		texts = append(texts, host+"="+u.hosts[host].String())
	}
	return strings.Join(texts, ",")
}

// Set adds the upstreams in a list separated by commas.
func (u *upstreams) Set(s string) error {
	for one := range strings.SplitSeq(s, ",") {
		if err := u.add(strings.TrimSpace(one)); err != nil {
			return err
		}
	}
	return nil
}

func (u *upstreams) add(s string) error {
	host, target, found := strings.Cut(s, "=")
	if !found || strings.Contains(host, "/") {
		host, target, found = "", s, false
	}
	parsed, err := parseUpstream(target)
	if err != nil {
		return err
	}
	if !found {
		if u.others.url != nil {
			return errors.New("only one upstream can be the default: write the others with their host, as in api.example.com=http://localhost:3000")
		}
		u.others = parsed
		return nil
	}
	name := proxy.HostName(host)
	if _, _, err := net.SplitHostPort(host); err == nil || !hostSyntax.MatchString(name) {
		return errors.New("the host before \"=\" must be a name or an address, without a port or wildcards")
	}
	if _, twice := u.hosts[name]; twice {
		return fmt.Errorf("the host %s has two upstreams: remove one", name)
	}
	if u.hosts == nil {
		u.hosts = make(map[string]upstream)
	}
	u.hosts[name] = parsed
	return nil
}

var hostSyntax = regexp.MustCompile(`^[a-z0-9._~:-]+$`)

// upstream is the URL of an upstream. The URL for the built-in API has no host.
type upstream struct{ url *url.URL }

const sampleUpstream = "sample"

func (u upstream) String() string {
	switch {
	case u.url == nil:
		return ""
	case u.isSample():
		return sampleUpstream
	}
	return u.url.Redacted()
}

func (u upstream) isSample() bool { return u.url != nil && u.url.Host == "" }

func parseUpstream(s string) (upstream, error) {
	if s == sampleUpstream {
		return upstream{new(url.URL)}, nil
	}
	parsed, err := url.Parse(s)
	switch {
	case err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" && parsed.Scheme != "h2c" || parsed.Hostname() == "":
		return upstream{}, errors.New(`write it as in http://localhost:3000, or "sample" for the built-in API`)
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return upstream{}, errors.New("a user, query or fragment is not allowed: write only a host and a path")
	}
	return upstream{parsed}, nil
}

// or returns the upstream's URL, or the URL sample if the upstream is the built-in API.
func (u upstream) or(sample *url.URL) *url.URL {
	if u.isSample() {
		return sample
	}
	return u.url
}

// upstreamStats has the counters of the upstreams. Hosts with the same URL share counters.
type upstreamStats struct {
	all    []*telemetry.UpstreamStats
	byName map[string]*telemetry.UpstreamStats // by the text of the URL
}

func newUpstreamStats(u *upstreams) upstreamStats {
	s := upstreamStats{byName: map[string]*telemetry.UpstreamStats{}}
	for _, one := range u.all() {
		name := one.String()
		if s.byName[name] != nil {
			continue
		}
		switch n := len(s.all); {
		case n < telemetry.MaxUpstreams:
			s.all = append(s.all, telemetry.NewUpstreamStats(name))
		case n == telemetry.MaxUpstreams:
			s.all = append(s.all, telemetry.NewUpstreamStats(telemetry.OtherUpstreams))
		}
		s.byName[name] = s.all[len(s.all)-1]
	}
	return s
}
