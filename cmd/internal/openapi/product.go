package openapi

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readKuadrant reads rate_limit in x-kuadrant.
func readKuadrant(d *Document, n *yaml.Node) []*limit {
	of := d.field(n, "rate_limit")
	if of == nil {
		return nil
	}
	l := &limit{by: byAll}
	for _, rate := range d.items(d.field(of, "rates")) {
		one := limit{}
		one.readFields(d.fields(rate))
		l.texts, l.notes, l.shadow = append(l.texts, one.texts...), append(l.notes, one.notes...), l.shadow || one.shadow
	}
	for _, counter := range d.items(d.field(of, "counters")) {
		l.readSelector(d.counterText(counter))
	}
	if len(d.items(d.field(of, "when"))) > 0 {
		l.shadow = true
		l.note("it has conditions in \"when\", which a policy does not support; the rule is in shadow mode, because it would deny more")
	}
	return []*limit{l}
}

// counterText returns the selector of a counter. A counter is a text or an object with an expression.
func (d *Document) counterText(n *yaml.Node) string {
	if e := d.field(n, "expression"); e != nil {
		return text(e)
	}
	return text(n)
}

// readSelector adds the selector of a Kuadrant counter to the key of a limit.
func (l *limit) readSelector(selector string) {
	_, header, isHeader := strings.Cut(selector, "request.headers.")
	if !isHeader {
		_, header, isHeader = strings.Cut(selector, "request.http.headers.")
	}
	switch {
	case isHeader && l.by != byCredentials:
		l.by, l.key = byKey, append(l.key, "header:"+header)
	case strings.HasPrefix(selector, "source."):
		l.by, l.key = byKey, append(l.key, clientIP)
	case strings.HasPrefix(selector, "auth."):
		l.by, l.key = byCredentials, nil
	default:
		l.by = byCredentials
		l.note("it counts by %q, which Sluice does not read; the rule counts by the credentials of the operation", selector)
	}
}

// kongPeriods has the fields of Kong's plugin that are limits, the shortest period first.
var kongPeriods = []string{"second", "minute", "hour", "day", "month", "year"}

// readKong reads Kong's plugin rate-limiting.
func readKong(d *Document, n *yaml.Node) []*limit {
	config := cmp.Or(d.field(n, "config"), n)
	if text(d.field(n, "enabled")) == "false" {
		return off
	}
	l := &limit{}
	for _, name := range kongPeriods {
		if v, ok := whole(d.field(config, name)); ok {
			l.texts = append(l.texts, fmt.Sprintf("%d/%s", v, directFields[name]))
		}
	}
	if len(l.texts) == 0 {
		l.note("it has none of %s", strings.Join(kongPeriods, ", "))
	}
	l.kongKey(d, config)
	return []*limit{l}
}

// kongKey sets the criterion of a limit from the configuration of a Kong plugin.
func (l *limit) kongKey(d *Document, config *yaml.Node) {
	field := func(names ...string) string {
		for _, name := range names {
			if v := text(d.field(config, name)); v != "" {
				return v
			}
		}
		return ""
	}
	switch by := field("limit_by", "identifier"); by {
	case "", "consumer", "credential":
	case "ip":
		l.by, l.key = byKey, []string{clientIP}
	case "header":
		l.by, l.key = byKey, []string{"header:" + field("header_name")}
	case "service", "path", "route":
		l.by = byAll
	default:
		l.note("it counts by %q; the rule counts by the credentials of the operation", by)
	}
}

// readKongAdvanced reads Kong's plugin rate-limiting-advanced.
func readKongAdvanced(d *Document, n *yaml.Node) []*limit {
	config := d.field(n, "config")
	if text(d.field(n, "enabled")) == "false" {
		return off
	}
	l := &limit{}
	counts, sizes := d.items(d.field(config, "limit")), d.items(d.field(config, "window_size"))
	for i, count := range counts[:min(len(counts), len(sizes))] {
		v, ok := whole(count)
		size, sized := whole(sizes[i])
		if p := period(size, "s"); ok && sized && p != "" {
			l.texts = append(l.texts, fmt.Sprintf("%d/%s", v, p))
		}
	}
	if len(l.texts) == 0 {
		l.note("it has no list of limits with a window_size")
	}
	l.kongKey(d, config)
	return []*limit{l}
}

// readKusk reads rate_limit in x-kusk.
func readKusk(d *Document, n *yaml.Node) []*limit {
	of := d.field(n, "rate_limit")
	if of == nil {
		return nil
	}
	all := d.readPlain(of)
	for _, l := range all {
		l.by = byAll
		if text(d.field(of, "per_connection")) == "true" {
			l.note("Kusk counts each connection separately; the rule counts all together")
		}
	}
	return all
}

// readYandex reads x-yc-apigateway-rate-limit, or rateLimit in x-yc-apigateway.
func readYandex(d *Document, n *yaml.Node) []*limit {
	all := d.readPlain(d.field(n, "allRequests"))
	for _, l := range all {
		l.by = byAll
	}
	return all
}

// readAPISIX reads APISIX's plugins limit-count and limit-req.
func readAPISIX(d *Document, n *yaml.Node) (all []*limit) {
	if of := d.field(n, "limit-count"); of != nil {
		l := &limit{}
		count, counted := whole(d.field(of, "count"))
		window, timed := whole(d.field(of, "time_window"))
		if p := period(window, "s"); counted && timed && p != "" {
			l.texts = []string{fmt.Sprintf("%d/%s", count, p)}
		} else {
			l.note("limit-count has no count with a time_window")
		}
		l.apisixKey(text(d.field(of, "key")))
		all = append(all, l)
	}
	if of := d.field(n, "limit-req"); of != nil {
		l := &limit{}
		rate, rated := whole(d.field(of, "rate"))
		burst, _ := whole(d.field(of, "burst"))
		if rated {
			l.texts = []string{fmt.Sprintf("%d/second burst %d", rate, burst+1)}
			if text(d.field(of, "nodelay")) != "true" && burst > 0 {
				l.algorithm = "leaky_bucket"
			}
		} else {
			l.note("the rate of limit-req is not a whole number")
		}
		l.apisixKey(text(d.field(of, "key")))
		all = append(all, l)
	}
	return all
}

// apisixKey sets the criterion of a limit from the key of an APISIX plugin, which is a variable of nginx.
func (l *limit) apisixKey(key string) {
	header, isHeader := strings.CutPrefix(strings.TrimPrefix(key, "$"), "http_")
	switch {
	case isHeader && header == "x_forwarded_for", strings.HasSuffix(key, "remote_addr"), key == "":
		l.by, l.key = byKey, []string{clientIP}
	case isHeader:
		l.by, l.key = byKey, []string{"header:" + strings.ReplaceAll(header, "_", "-")}
	case key == "consumer_name":
	default:
		l.note("it counts by %q, which Sluice does not read; the rule counts by the credentials of the operation", key)
	}
}

// readHuawei reads x-apigateway-ratelimit, which names a policy in x-apigateway-ratelimits.
func readHuawei(d *Document, n *yaml.Node) (all []*limit) {
	of := d.field(d.field(d.root, "x-apigateway-ratelimits"), text(n))
	if of == nil {
		return []*limit{unreadable("the document has no policy %q under x-apigateway-ratelimits", text(n))}
	}
	interval, _ := whole(d.field(of, "interval"))
	length := period(interval, text(d.field(of, "unit")))
	for _, scope := range []struct {
		field string
		by    countBy
		key   []string
	}{{"api-limit", byAll, nil}, {"ip-limit", byKey, []string{clientIP}}, {"user-limit", byCredentials, nil}, {"app-limit", byCredentials, nil}} {
		if v, ok := whole(d.field(of, scope.field)); ok && length != "" {
			all = append(all, &limit{texts: []string{fmt.Sprintf("%d/%s", v, length)}, by: scope.by, key: scope.key})
		}
	}
	if len(all) == 0 {
		return []*limit{unreadable("the policy %q has no limit with an interval and a unit", text(n))}
	}
	if text(d.field(of, "shared")) == "true" {
		all[0].note("operations with this policy share a count; the rules count each operation separately")
	}
	if len(d.items(d.field(of, "special"))) > 0 {
		all[0].note("the limits of single users and apps (\"special\") are not imported: write them as \"overrides\"")
	}
	return all
}

// tykLimits returns the limits in x-tyk-api-gateway, by operationId.
func (d *Document) tykLimits() map[string]*limit {
	all := map[string]*limit{}
	operations := d.field(d.field(d.field(d.root, "x-tyk-api-gateway"), "middleware"), "operations")
	for id, of := range pairs(operations) {
		if l := d.tykLimit(d.field(of, "rateLimit")); l != nil {
			all[id.Value] = l
		}
	}
	return all
}

func (d *Document) tykLimit(n *yaml.Node) *limit {
	if n == nil || text(d.field(n, "enabled")) == "false" {
		return nil
	}
	l := &limit{extension: "x-tyk-api-gateway", by: byAll}
	rate, ok := whole(d.field(n, "rate"))
	if p := period(1, text(d.field(n, "per"))); ok && p != "" {
		l.texts = []string{fmt.Sprintf("%d/%s", rate, p)}
	} else {
		l.note("rateLimit has no rate with a period in per")
	}
	return l
}
