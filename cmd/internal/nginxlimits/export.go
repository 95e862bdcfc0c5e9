// Package nginxlimits translates between policies and nginx's limit_req and limit_conn. It imports package policy,
// and package cli imports it.
//
// [Write] translates a policy to limits of an nginx in front of Sluice (sluice export nginx). It covers the rules
// that count every request by address or in total, and denies no more than Sluice does, with the exceptions that it
// prints.
//
// [Import] translates a configuration to a policy (sluice import nginx). A location has either its own limits or
// those of its server, but in a policy all rules that match apply. So for each location that a rule leaves out, it
// has a pattern, before the patterns that it counts, and an override that exempts this route.
package nginxlimits

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

const intro = `# Made by "sluice export nginx", for the http block of nginx. Sluice behind it counts the same, with
# everything else that the policy says: keep its limits as they are.
#
# What differs: nginx counts an IPv6 address by itself, and Sluice its network; what the instances of
# nginx count they do not tell each other; a zone that is full forgets the address that it has not
# seen for longest. A rate is a whole number of thousandths of a request a second.
`

// zoneSize is room for some 160,000 IPv4 addresses.
const zoneSize = "10m"

// Write returns a configuration for the http block, with a comment for each rule that is not in it. The document
// must compile.
func Write(doc *policy.Document) []byte {
	var b bytes.Buffer
	b.WriteString(intro)
	realIP(&b, doc.TrustedProxies)
	var used []string
	for i := range doc.Rules {
		r := &doc.Rules[i]
		fmt.Fprintf(&b, "\n# rule %s: ", r.Name)
		zones, err := zonesOf(r, doc.Overrides)
		if err != nil {
			fmt.Fprintf(&b, "not here: %v\n", err)
			continue
		}
		b.WriteString(cmp.Or(r.Algorithm, sluice.TokenBucket.String()) + "\n")
		for _, z := range zones {
			z.write(&b)
			used = append(used, z.use())
		}
	}
	if len(used) > 0 {
		b.WriteString("\nlimit_req_status 429;\n")
	}
	for _, line := range used {
		b.WriteString(line)
	}
	return b.Bytes()
}

// realIP makes nginx trust the proxies that the policy trusts.
func realIP(b *bytes.Buffer, trusted []string) {
	if len(trusted) == 0 {
		return
	}
	b.WriteString("\n# trusted_proxies (ngx_http_realip_module)\n")
	for _, network := range trusted {
		fmt.Fprintf(b, "set_real_ip_from %s;\n", network)
	}
	b.WriteString("real_ip_header X-Forwarded-For;\nreal_ip_recursive on;\n")
}

// zone is a limit_req_zone.
type zone struct {
	name, key string
	rate      rate
	burst     int64
	delays    bool
	note      string
}

func (z *zone) write(b *bytes.Buffer) {
	for _, note := range []string{z.note, z.rate.note} {
		if note != "" {
			fmt.Fprintf(b, "# %s\n", note)
		}
	}
	fmt.Fprintf(b, "limit_req_zone %s zone=%s:%s rate=%s;\n", z.key, z.name, zoneSize, z.rate.text)
}

// use returns the line that limits by the zone.
func (z *zone) use() string {
	line := "limit_req zone=" + z.name
	if z.burst > 0 {
		line += fmt.Sprintf(" burst=%d", z.burst)
		if !z.delays {
			line += " nodelay"
		}
	}
	return line + ";\n"
}

// zonesOf returns the zones of a rule, or an error with the reason why nginx cannot enforce the rule.
func zonesOf(r *policy.Rule, overrides []policy.Override) ([]zone, error) {
	key, err := keyOf(r)
	if err == nil {
		err = alone(r, overrides)
	}
	if err != nil {
		return nil, err
	}
	if r.InFlight != (policy.InFlight{}) {
		return nil, errors.New("it counts requests in flight; limit_conn of nginx does that on each instance for itself")
	}
	if r.Distinct.Of != "" {
		return nil, errors.New("it counts different values, which nginx cannot")
	}
	texts := r.LimitTexts()
	var zones []zone
	for i, text := range texts {
		z, err := zoneOf(text, r.Algorithm)
		if err != nil {
			return nil, err
		}
		z.name, z.key = "sluice_"+r.Name, key
		if len(texts) > 1 {
			z.name += fmt.Sprintf("_%d", i+1)
		}
		zones = append(zones, z)
	}
	return zones, nil
}

// keyOf returns the key of a zone.
func keyOf(r *policy.Rule) (string, error) {
	switch {
	case r.Block:
		return "", errors.New("it blocks; Sluice does that")
	case r.Exempt:
		return "", errors.New("it exempts, and the limits below count these requests, too")
	case len(r.Key) == 0:
		return "all", nil
	case slices.Equal(r.Key, []string{"client_ip"}):
		return "$binary_remote_addr", nil
	}
	return "", fmt.Errorf("its key is %v, and nginx can count by address only", r.Key)
}

// alone returns an error if the rule depends on more than its key.
func alone(r *policy.Rule, overrides []policy.Override) error {
	switch {
	case len(r.Match)+len(r.Hosts)+len(r.Headers)+len(r.Attributes)+len(r.Body) > 0:
		return errors.New("it is for some requests only, and nginx reads paths and hosts in another way")
	case len(r.Clients)+len(r.NotClients) > 0:
		return errors.New("it is for some clients only")
	case r.Shadow:
		return errors.New("it is in shadow mode, which denies nothing")
	case r.Enforce != "":
		return errors.New("it is enforced for a share of its subjects")
	case len(r.Tiers) > 0:
		return errors.New("its limit depends on the tier")
	case len(r.Count.Status) > 0 || r.Count.UnlessHeader != "":
		return errors.New("what counts depends on the response")
	case !r.Cost.IsZero() && !reflect.DeepEqual(r.Cost, policy.Cost{Default: 1}):
		return errors.New("requests have a cost")
	case r.Penalty != policy.Penalty{}:
		return errors.New("it has a penalty, for which Sluice has to see what exceeds it")
	case slices.ContainsFunc(overrides, func(o policy.Override) bool { return o.Rule == r.Name }):
		return errors.New("it has overrides")
	}
	return nil
}

// zoneOf returns a zone for a limit. In nginx, an empty bucket takes one request and "burst" more.
func zoneOf(text, algorithm string) (z zone, err error) {
	l, err := sluice.ParseLimit(text)
	if err != nil {
		return z, err
	}
	for _, a := range sluice.Algorithms() {
		if a.String() == algorithm {
			l.Algorithm = a
		}
	}
	switch l.Algorithm {
	case sluice.FixedWindow, sluice.SlidingWindowCounter:
		return z, fmt.Errorf("a bucket would deny requests that a %v allows", l.Algorithm)
	case sluice.SlidingWindowLog, sluice.SlidingWindowLogExact:
		l.Algorithm = sluice.TokenBucket
		z.note = "A bucket denies no request that the log allows, and allows up to twice as many in a period."
	case sluice.LeakyBucket:
		z.delays = true
		z.note = "nginx holds requests until their turn, and so Sluice has none to hold."
	}
	plan, err := sluice.NewPlan(l)
	if err != nil {
		return z, err
	}
	z.burst = plan.Capacity - 1
	z.rate, err = rateOf(l)
	return z, err
}

// rate is the rate of a zone.
type rate struct{ text, note string }

// rateOf returns the rate of a limit, or the next higher rate that nginx can express.
func rateOf(l sluice.Limit) (rate, error) {
	if perSecond := l.Count * int64(time.Second); perSecond%int64(l.Period) == 0 {
		return rate{text: fmt.Sprintf("%dr/s", perSecond/int64(l.Period))}, nil
	}
	perMinute := float64(l.Count) * float64(time.Minute) / float64(l.Period)
	if perMinute < 1 {
		return rate{}, fmt.Errorf("%v is less than 1r/m, the slowest rate of nginx", l)
	}
	n := int64(perMinute)
	for float64(n*1000/60) < perMinute*1000/60 { // nginx rounds down to thousandths
		n++
	}
	return rate{
		text: fmt.Sprintf("%dr/m", n),
		note: fmt.Sprintf("The rate of %v is %.4g requests a second; what nginx makes of %dr/m is %.3f, the next above.", l, perMinute/60, n, float64(n*1000/60)/1000),
	}, nil
}
