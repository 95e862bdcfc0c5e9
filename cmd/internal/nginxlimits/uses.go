package nginxlimits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// zoneDefinition is a limit_req_zone or a limit_conn_zone.
type zoneDefinition struct {
	name, key string
	rate      string // for limit_req_zone: the rate, in the form of a policy's limit
	at        *conf.Directive
	used      bool
}

// use is a limit_req or a limit_conn.
type use struct {
	conn     bool
	zone     string
	burst    int64
	nodelay  bool
	delay    int64 // the number of requests after the first that are not delayed
	requests int64 // for limit_conn: the maximum number of requests at the same time
	dryRun   bool
	status   int
	at       *conf.Directive
}

// likes reports whether two uses set the same limit.
func (u *use) likes(o *use) bool {
	a, b := *u, *o
	a.at, b.at, a.status, b.status = nil, nil, 0, 0
	return a == b
}

// scope has the limits in force in a block. Inner blocks inherit them. A limit_req in an inner block replaces all
// inherited limit_req, and a limit_conn replaces all inherited limit_conn.
type scope struct {
	reqs, conns           []use
	reqStatus, connStatus int
	reqDry, connDry       bool
}

// uses returns the limits in force.
func (s *scope) uses() (all []use) {
	for _, u := range s.reqs {
		u.dryRun, u.status = s.reqDry, s.reqStatus
		all = append(all, u)
	}
	for _, u := range s.conns {
		u.dryRun, u.status = s.connDry, s.connStatus
		all = append(all, u)
	}
	return all
}

// readZones reads the definitions of zones.
func (r *reader) readZones(all []*conf.Directive) error {
	for _, d := range all {
		if !definesZone(d) {
			if err := noZones(d.Block); err != nil {
				return err
			}
			continue
		}
		z, err := zoneOfDirective(d)
		if err != nil {
			return err
		}
		if other := r.zone(d.Name, z.name); other != nil {
			return d.Errorf("the zone %q is already defined at %s", z.name, other.at.Where())
		}
		r.zones = append(r.zones, z)
	}
	return nil
}

func definesZone(d *conf.Directive) bool {
	return d.Name == "limit_req_zone" || d.Name == "limit_conn_zone"
}

// zone returns the zone with the given name, or nil. The parameter directive is the kind of directive that defines the
// zone.
func (r *reader) zone(directive, name string) *zoneDefinition {
	for _, z := range r.zones {
		if z.at.Name == directive && z.name == name {
			return z
		}
	}
	return nil
}

// noZones returns an error if a zone is defined in a block, where nginx does not allow it.
func noZones(all []*conf.Directive) error {
	for _, d := range all {
		if definesZone(d) {
			return d.Errorf("%s must be directly in the http block", d.Name)
		}
		if err := noZones(d.Block); err != nil {
			return err
		}
	}
	return nil
}

func zoneOfDirective(d *conf.Directive) (*zoneDefinition, error) {
	z := &zoneDefinition{at: d}
	for i, arg := range d.Args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case i == 0:
			z.key = arg
		case name == "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case name == "rate":
			rate, err := rateOfText(value)
			if err != nil {
				return nil, d.Errorf("%w", err)
			}
			z.rate = rate
		case name == "sync": // shares counts between instances, as Sluice does with a shared store
		default:
			return nil, d.Errorf("unknown parameter %q of %s", arg, d.Name)
		}
	}
	switch {
	case z.name == "":
		return nil, d.Errorf("%s has no zone", d.Name)
	case z.rate == "" && d.Name == "limit_req_zone":
		z.rate = "1/second"
	}
	return z, nil
}

// maxRate is the largest number that is accepted in a rate, a burst or a delay.
const maxRate = 1 << 31

// rateOfText converts a rate of nginx to the form of a policy's limit.
func rateOfText(text string) (string, error) {
	number, unit := strings.TrimSuffix(text, "r/s"), "second"
	if number == text {
		number, unit = strings.TrimSuffix(text, "r/m"), "minute"
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if number == text || err != nil || n < 1 || n > maxRate {
		return "", fmt.Errorf("the rate %q is invalid: write it as in 10r/s or 30r/m", text)
	}
	return fmt.Sprintf("%d/%s", n, unit), nil
}

// defaultStatus is nginx's default status of denials.
const defaultStatus = 503

// apply reads the limits of a block, which replace inherited ones.
func (s *scope) apply(r *reader, block []*conf.Directive) error {
	var reqs, conns []use
	for _, d := range block {
		var err error
		switch d.Name {
		case "limit_req":
			err = appendUse(&reqs, d, useOfReq)
		case "limit_conn":
			err = appendUse(&conns, d, useOfConn)
		case "limit_req_status":
			s.reqStatus, err = statusOf(d)
		case "limit_conn_status":
			s.connStatus, err = statusOf(d)
		case "limit_req_dry_run":
			s.reqDry, err = isOn(d)
		case "limit_conn_dry_run":
			s.connDry, err = isOn(d)
		case "limit_zone":
			r.note(d, "limit_zone is obsolete since nginx 1.1.8: write limit_conn_zone")
		case "set_real_ip_from", "real_ip_header", "real_ip_recursive":
			r.realIP(d)
		}
		if err != nil {
			return err
		}
	}
	if reqs != nil {
		s.reqs = reqs
	}
	if conns != nil {
		s.conns = conns
	}
	return nil
}

func appendUse(all *[]use, d *conf.Directive, read func(*conf.Directive) (use, error)) error {
	u, err := read(d)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(*all, func(o use) bool { return o.zone == u.zone }) {
		return d.Errorf("the zone %q is used twice in one block", u.zone)
	}
	*all = append(*all, u)
	return nil
}

func useOfReq(d *conf.Directive) (use, error) {
	u := use{at: d}
	for _, arg := range d.Args {
		name, value, _ := strings.Cut(arg, "=")
		var err error
		switch {
		case name == "zone":
			u.zone = value
		case name == "burst":
			u.burst, err = number(value)
		case name == "delay":
			u.delay, err = number(value)
		case arg == "nodelay":
			u.nodelay = true
		default:
			return u, d.Errorf("unknown parameter %q of limit_req", arg)
		}
		if err != nil {
			return u, d.Errorf("%s: %w", name, err)
		}
	}
	if u.zone == "" {
		return u, d.Errorf("limit_req has no zone")
	}
	if u.burst == 0 || u.delay >= u.burst {
		u.nodelay = true // no request is delayed
	}
	if u.nodelay {
		u.delay = 0
	}
	return u, nil
}

func useOfConn(d *conf.Directive) (use, error) {
	u := use{at: d, conn: true}
	if len(d.Args) != 2 {
		return u, d.Errorf("limit_conn must have a zone and a number")
	}
	n, err := number(d.Args[1])
	if err != nil || n < 1 || n > 65535 {
		return u, d.Errorf("limit_conn: %q is not a number from 1 to 65535", d.Args[1])
	}
	u.zone, u.requests = d.Args[0], n
	return u, nil
}

func number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxRate {
		return 0, fmt.Errorf("%q is not a number above 0", text)
	}
	return n, nil
}

func statusOf(d *conf.Directive) (int, error) {
	if len(d.Args) == 1 {
		if n, err := strconv.Atoi(d.Args[0]); err == nil && n >= 400 && n <= 599 {
			return n, nil
		}
	}
	return 0, d.Errorf("%s must be a status from 400 to 599", d.Name)
}

func isOn(d *conf.Directive) (bool, error) {
	if len(d.Args) == 1 && (d.Args[0] == "on" || d.Args[0] == "off") {
		return d.Args[0] == "on", nil
	}
	return false, d.Errorf("%s must be on or off", d.Name)
}
