// Package nginxlimits translates between policies and nginx's limit_req and limit_conn. It imports package policy,
// and package cli imports it.
//
// [Write] translates a policy to limits of an nginx in front of Sluice (sluice export nginx). It covers the rules
// that count every request by address or in total. nginx then denies no more than Sluice, with exceptions that the
// output names.
//
// [Import] translates a configuration to a policy (sluice import nginx). A location has either its own limits or
// those of its server, but in a policy all matching rules apply. So a rule that must not apply to a location also
// matches that location, and an override exempts it there.
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

const intro = `# Made by "sluice export nginx", for the http block of nginx. Sluice behind nginx still enforces the
# whole policy: do not relax its limits.
#
# Differences: nginx counts each IPv6 address separately, but Sluice counts its network. Instances of
# nginx count separately. A full zone forgets the address that it has not seen for the longest time.
# nginx rounds rates to thousandths of a request a second.
`

// zoneSize is enough for some 80,000 addresses: nginx needs 128 bytes for each, on 64-bit machines.
const zoneSize = "10m"

// Write returns a configuration for the http block, with a comment for each rule that it omits. The document must
// compile.
func Write(doc *policy.Document) []byte {
	var b bytes.Buffer
	b.WriteString(intro)
	realIP(&b, doc.TrustedProxies)
	var used []string
	for _, r := range doc.Rules {
		fmt.Fprintf(&b, "\n# rule %s: ", r.Name)
		r.Shadow = r.Shadow || inShadow(doc)
		zones, err := zonesOf(&r, doc.Overrides)
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

// inShadow reports whether the whole policy is in shadow mode.
func inShadow(doc *policy.Document) bool {
	until, err := policy.ParseUntil(doc.Shadow)
	return doc.Shadow == policy.ShadowAlways || err == nil && until.After(time.Now())
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

// use returns the limit_req line for the zone.
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

// zonesOf returns the zones of a rule. The error is the reason why nginx cannot enforce the rule.
func zonesOf(r *policy.Rule, overrides []policy.Override) ([]zone, error) {
	key, err := keyOf(r)
	if err == nil {
		err = onlyByKey(r, overrides)
	}
	if err != nil {
		return nil, err
	}
	if r.InFlight != (policy.InFlight{}) {
		return nil, errors.New("it counts requests in flight, but limit_conn counts them on each instance separately")
	}
	if r.Distinct.Of != "" {
		return nil, errors.New("it counts distinct values, which nginx cannot count")
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
		return "", errors.New("it blocks clients, which only Sluice does")
	case r.Exempt:
		return "", errors.New("it exempts, but the limits below also count these requests")
	case len(r.Key) == 0:
		return "all", nil
	case slices.Equal(r.Key, []string{"client_ip"}):
		return "$binary_remote_addr", nil
	}
	return "", fmt.Errorf("its key is %v, but nginx can count only by address", r.Key)
}

// onlyByKey returns an error if a request's treatment depends on more than the rule's key.
func onlyByKey(r *policy.Rule, overrides []policy.Override) error {
	switch {
	case len(r.Match)+len(r.Hosts)+len(r.Headers)+len(r.Attributes)+len(r.Body) > 0:
		return errors.New("it applies only to some requests, and nginx reads paths and hosts differently")
	case len(r.Clients)+len(r.NotClients) > 0:
		return errors.New("it applies only to some clients")
	case r.Shadow:
		return errors.New("it is in shadow mode, which denies nothing")
	case r.Over == "mark":
		return errors.New("it marks requests, and denies none")
	case r.OnlyClassifies():
		return errors.New("it has a class and no limit")
	case r.Enforce != "":
		return errors.New("it is enforced only for a percentage of its subjects")
	case len(r.Tiers) > 0:
		return errors.New("its limit depends on the tier")
	case len(r.Count.Status) > 0 || r.Count.UnlessHeader != "":
		return errors.New("whether a request counts depends on the response")
	case !r.Cost.IsZero() && !reflect.DeepEqual(r.Cost, policy.Cost{Default: 1}):
		return errors.New("requests have a cost")
	case r.Penalty != policy.Penalty{}:
		return errors.New("it has a penalty, so Sluice must see the requests that exceed the limit")
	case slices.ContainsFunc(overrides, func(o policy.Override) bool { return o.Rule == r.Name }):
		return errors.New("it has overrides")
	}
	return nil
}

// zoneOf returns a zone for a limit. In nginx, an empty bucket allows one request plus "burst" more.
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
		z.note = "nginx delays requests until their turn, so Sluice need not delay them."
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

// rateOf returns the rate of a limit, rounded up to a rate that nginx can express.
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
		note: fmt.Sprintf("The rate of %v is %.4g requests per second; nginx rounds %dr/m to %.3f, the next higher rate.", l, perMinute/60, n, float64(n*1000/60)/1000),
	}, nil
}
