package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
)

// The types of flags: each checks its value when it is set, and says what to write.

// address is where to listen: host:port.
type address string

func (a *address) String() string { return string(*a) }
func (a *address) Type() string   { return "host:port" }

func (a *address) Set(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("write host:port, or :8080 for all interfaces")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535")
	} else if n == 0 && port != "0" {
		return errors.New("write the port without leading zeros")
	}
	*a = address(s)
	return nil
}

// plainPath is a path that every reader takes for the same.
type plainPath string

func (p *plainPath) String() string { return string(*p) }
func (p *plainPath) Type() string   { return "path" }

var plainPathSyntax = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

func (p *plainPath) Set(s string) error {
	if s != "" && !plainPathSyntax.MatchString(s) {
		return errors.New(`write a path as in /v1/quota, of letters, digits, ".", "_", "~" and "-"`)
	}
	*p = plainPath(s)
	return nil
}

// upstreams are where requests go by their host: "api.example.com=http://localhost:3000", and
// without a host, where the rest goes.
type upstreams struct {
	rest  upstream
	hosts map[string]upstream
}

func (u *upstreams) Type() string   { return "[host=]URL" }
func (u *upstreams) any() bool      { return u.rest.url != nil || len(u.hosts) > 0 }
func (u *upstreams) isSample() bool { return slices.ContainsFunc(u.all(), upstream.isSample) }

// all returns each of them once.
func (u *upstreams) all() (all []upstream) {
	if u.rest.url != nil {
		all = append(all, u.rest)
	}
	for _, host := range slices.Sorted(maps.Keys(u.hosts)) {
		all = append(all, u.hosts[host])
	}
	return all
}

func (u *upstreams) String() string {
	var texts []string
	if u.rest.url != nil {
		texts = append(texts, u.rest.String())
	}
	for _, host := range slices.Sorted(maps.Keys(u.hosts)) {
		texts = append(texts, host+"="+u.hosts[host].String())
	}
	return strings.Join(texts, ",")
}

// Set adds upstreams: one, or several with commas between them.
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
		if u.rest.url != nil {
			return errors.New("one of them is for all hosts that no other is for: write the others as in api.example.com=http://localhost:3000")
		}
		u.rest = parsed
		return nil
	}
	name := proxy.HostName(host)
	if _, _, err := net.SplitHostPort(host); err == nil || !hostSyntax.MatchString(name) {
		return errors.New("the host before the = is a name or an address, without a port and without wildcards")
	}
	if _, twice := u.hosts[name]; twice {
		return fmt.Errorf("the host %s has two: give one", name)
	}
	if u.hosts == nil {
		u.hosts = make(map[string]upstream)
	}
	u.hosts[name] = parsed
	return nil
}

var hostSyntax = regexp.MustCompile(`^[a-z0-9._~:-]+$`)

// upstream is a URL, or the word for the built-in API.
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
		return upstream{}, errors.New("it may have a host and a path, and no user, query or fragment")
	}
	return upstream{parsed}, nil
}

// size is a number of bytes.
type size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

func (z *size) Type() string { return "size" }

func (z *size) String() string {
	for _, u := range sizeUnits {
		if *z != 0 && int64(*z)%u.bytes == 0 {
			return strconv.FormatInt(int64(*z)/u.bytes, 10) + u.name
		}
	}
	return "0"
}

func (z *size) Set(s string) error {
	for _, u := range sizeUnits {
		digits, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		*z = size(n * u.bytes)
		return nil
	}
	return errors.New("write it as in 64KiB or 10MiB")
}

// period is a length of time that is not negative.
type period time.Duration

func (p *period) String() string { return time.Duration(*p).String() }
func (p *period) Type() string   { return "duration" }

func (p *period) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("write it as in 500ms, 10s or 1m30s")
	}
	*p = period(d)
	return nil
}

// number is how many of something there may be, at least 1; 0 is what was not set.
type number int

func (n *number) String() string { return strconv.Itoa(int(*n)) }
func (n *number) Type() string   { return "number" }

func (n *number) Set(s string) error {
	v, err := strconv.ParseUint(s, 10, 31)
	if err != nil || v == 0 {
		return errors.New("write a whole number, at least 1")
	}
	*n = number(v)
	return nil
}

// level is how much to log.
type level struct{ slog.Level }

func (l *level) String() string { return strings.ToLower(l.Level.String()) }
func (l *level) Type() string   { return "level" }

func (l *level) Set(s string) error {
	for _, known := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, known.String()) {
			l.Level = known
			return nil
		}
	}
	return fmt.Errorf("use debug, info, warn or error")
}
