package openapi

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// limit is a limit in an extension.
type limit struct {
	extension string
	texts     []string // in the form of a policy, such as "100/minute"
	by        countBy
	key       []string // the key parts; only used with byKey
	algorithm string
	shadow    bool // the rule is in shadow mode, for example because it would deny more than the extension
	notes     []string
}

// countBy is the criterion by which a limit counts requests.
type countBy uint8

const (
	byCredentials countBy = iota // the credentials that the operation requires
	byAll                        // all clients together
	byKey
)

func (l *limit) note(format string, args ...any) {
	l.notes = append(l.notes, fmt.Sprintf(format, args...))
}

// forms has a reader for each extension of a product, by the name of the extension. A reader returns nil for an
// extension without a limit, and an empty list for one that switches limits off.
var forms = map[string]func(d *Document, n *yaml.Node) []*limit{
	"x-kuadrant":                           readKuadrant,
	"x-kong-plugin-rate-limiting":          readKong,
	"x-kong-plugin-rate-limiting-advanced": readKongAdvanced,
	"x-kusk":                               readKusk,
	"x-yc-apigateway-rate-limit":           readYandex,
	"x-apisix-plugins":                     readAPISIX,
	"x-apigateway-ratelimit":               readHuawei,
}

// off is a reader's result for an extension that switches limits off.
var off = []*limit{}

// limitsOf returns the limits in the extensions of a document, a path or an operation. It reports whether any extension
// is about limits.
func (d *Document) limitsOf(n *yaml.Node) (all []*limit, known bool) {
	flat, first := &yaml.Node{Kind: yaml.MappingNode}, ""
	for key, value := range pairs(n) {
		var found []*limit
		switch name := folded(key.Value); {
		case forms[strings.ToLower(key.Value)] != nil:
			found = forms[strings.ToLower(key.Value)](d, d.resolve(value, 0))
		case plainNames[name]:
			found = d.readPlain(d.resolve(value, 0))
		case strings.HasPrefix(name, "xratelimit"):
			first = cmp.Or(first, key.Value)
			flat.Content = append(flat.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimPrefix(name, "xratelimit")}, value)
		case name == "xthrottlingtier" || name == "xwso2throttlingtier":
			found = []*limit{unreadable("the tier %q is defined elsewhere", text(value))}
		}
		for _, l := range found {
			l.extension = key.Value
		}
		all, known = append(all, found...), known || found != nil
	}
	if first != "" {
		for _, l := range d.readPlain(flat) {
			l.extension = first
			all = append(all, l)
		}
	}
	return all, known || first != ""
}

// plainNames has the folded names of extensions that do not belong to a product.
var plainNames = map[string]bool{"xratelimit": true, "xratelimits": true, "xratelimiting": true, "xthrottle": true, "xthrottling": true}

// folded returns a name in lower case without "-" and "_".
func folded(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// unreadable returns a limit that consists only of a note.
func unreadable(format string, args ...any) *limit {
	l := &limit{}
	l.note(format, args...)
	return l
}

// The folded names of fields of a plain extension. The first name that is present is used.
var (
	countFields  = []string{"limit", "max", "maxrequests", "requests", "requestlimit", "permitlimit", "permits", "events", "calls", "count", "rate", "quota", "requestsperunit", "allow", "points"}
	periodFields = []string{"window", "windowseconds", "windowsizeseconds", "windowsize", "windowms", "period", "periodseconds", "interval", "intervalseconds", "duration", "timewindow", "timeframe", "per", "unit", "timeunit"}
	burstFields  = []string{"burst", "burstlimit", "burstsize", "burstcapacity"}
	keyFields    = []string{"key", "by", "keyby", "limitby", "countby", "scope", "identifier", "per"}
)

// directFields has the periods of fields by their folded names. Such a name includes the period, as in
// requestsPerMinute, and the value of the field is the number of requests.
var directFields = map[string]string{
	"rps": "second", "requestspersecond": "second", "persecond": "second", "second": "second",
	"rpm": "minute", "requestsperminute": "minute", "perminute": "minute", "minute": "minute",
	"rph": "hour", "requestsperhour": "hour", "perhour": "hour", "hour": "hour",
	"rpd": "day", "requestsperday": "day", "perday": "day", "day": "day", "daily": "day", "hourly": "hour",
	"month": "month", "permonth": "month", "requestspermonth": "month", "monthly": "month",
	"year": "365d",
}

// readPlain reads an extension that does not belong to a product. It may be a text such as "100/minute", a list of
// limits, or an object with a count and a period in fields of many possible names.
func (d *Document) readPlain(n *yaml.Node) []*limit {
	if n == nil {
		return []*limit{unreadable("its reference has no target")}
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if slices.Contains([]string{"false", "none", "off", "disabled", "unlimited"}, strings.ToLower(text(n))) {
			return off
		}
		return []*limit{readText(text(n))}
	case yaml.SequenceNode:
		all := off
		for _, item := range d.items(n) {
			if item.Kind != yaml.SequenceNode {
				all = append(all, d.readPlain(item)...)
			}
		}
		return all
	}
	fields := d.fields(n)
	if text(fields["enabled"]) == "false" || text(fields["enable"]) == "false" || text(fields["disabled"]) == "true" {
		return off
	}
	l := &limit{}
	l.readFields(fields)
	l.readKey(firstText(fields, keyFields))
	return []*limit{l}
}

// fields returns the values of a mapping by the folded names of their keys. If several keys have the same folded
// name, the first one counts.
func (d *Document) fields(n *yaml.Node) map[string]*yaml.Node {
	all := map[string]*yaml.Node{}
	for key, value := range pairs(n) {
		name := folded(key.Value)
		if _, found := all[name]; !found {
			all[name] = d.resolve(value, 0)
		}
	}
	return all
}

// readFields reads a limit from the fields of an object.
func (l *limit) readFields(fields map[string]*yaml.Node) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		period := directFields[name]
		if v, ok := whole(fields[name]); ok && period != "" {
			l.texts = append(l.texts, fmt.Sprintf("%d/%s", v, period))
		}
	}
	if len(l.texts) == 0 {
		l.readCount(fields)
	}
	for _, name := range burstFields {
		if v, ok := whole(fields[name]); ok && len(l.texts) == 1 {
			l.texts[0] += fmt.Sprintf(" burst %d", v)
			break
		}
	}
}

// readCount reads a count and a period from two fields.
func (l *limit) readCount(fields map[string]*yaml.Node) {
	var count int64
	for _, name := range countFields {
		n := fields[name]
		if v, ok := whole(n); ok {
			count = v
			break
		}
		if at := readText(text(n)); len(at.texts) > 0 {
			l.texts = at.texts
			return
		}
	}
	period := periodOf(fields)
	switch {
	case count == 0 && fields["category"] != nil:
		l.note("the category %q is defined elsewhere", text(fields["category"]))
	case count == 0:
		l.note("Sluice found no number of requests in it")
	case period == "":
		l.texts = []string{fmt.Sprintf("%d/minute", count)}
		l.shadow = true
		l.note("Sluice found no period in it; the rule uses a minute, and is in shadow mode: set the period, then remove \"shadow: true\"")
	default:
		l.texts = []string{fmt.Sprintf("%d/%s", count, period)}
	}
}

// periodOf returns the period in the fields of an object, or "" if it is missing.
func periodOf(fields map[string]*yaml.Node) string {
	number, unit := int64(0), ""
	for _, name := range periodFields {
		v, ok := whole(fields[name])
		switch {
		case ok && number == 0 && strings.HasSuffix(name, "ms"):
			number, unit = v, "ms"
		case ok && number == 0 && strings.HasSuffix(name, "seconds"):
			number, unit = v, "s"
		case ok && number == 0:
			number = v
		case unit == "" && period(1, text(fields[name])) != "":
			unit = text(fields[name])
		}
	}
	if number == 0 {
		return period(1, unit)
	}
	if unit == "" && !namesUnit(fields) {
		unit = "s"
	}
	return period(number, unit)
}

// namesUnit reports whether the field unit or timeunit may name a unit of time, rather than a count such as
// "requests".
func namesUnit(fields map[string]*yaml.Node) bool {
	unit := folded(cmp.Or(text(fields["unit"]), text(fields["timeunit"])))
	return unit != "" && !slices.Contains(countFields, unit)
}

// firstText returns the first text in the named fields that is neither a number nor a period of time.
func firstText(fields map[string]*yaml.Node, names []string) string {
	for _, name := range names {
		v := text(fields[name])
		if _, isNumber := whole(fields[name]); v != "" && !isNumber && period(1, v) == "" {
			return v
		}
	}
	return ""
}

// readKey sets the criterion of a limit from its text in the extension.
func (l *limit) readKey(by string) {
	of := wordsOf(by)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(of, w) })
	}
	header, isHeader := strings.CutPrefix(strings.ToLower(by), "header:")
	switch {
	case by == "":
	case isHeader:
		l.by, l.key = byKey, []string{"header:" + header}
	case has("ip", "ips", "address", "addr", "remote"):
		l.by, l.key = byKey, []string{clientIP}
	case has("global", "all", "service", "route", "endpoint", "operation", "api", "total") && !has("key", "user"):
		l.by = byAll
	case has("user", "users", "account", "key", "apikey", "token", "consumer", "credential", "client", "organization", "org", "tenant", "identity", "subject", "app", "application", "project"):
	default:
		l.note("it counts by %q, which Sluice does not know; the rule counts by the credentials of the operation", by)
	}
}

var letterHumps = regexp.MustCompile(`([a-z])([A-Z])`)

// wordsOf splits a name such as per-IP, apiKey or client_id into words in lower case.
func wordsOf(name string) []string {
	name = letterHumps.ReplaceAllString(name, "$1 $2")
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r < '0' || r > '9' && r < 'a' || r > 'z' })
}

var limitText = regexp.MustCompile(`(?i)^\s*([0-9][0-9_,]*)\s*(?:requests?|reqs?|calls?|r)?\s*(?:/|per\b|every\b|in\b|a\b)\s*([0-9]+)?\s*([a-z]+)\b\s*(?:per\s+(.*))?$`)

// readText reads a limit such as "100/minute", "60r/m" or "1000 requests per 15 minutes".
func readText(v string) *limit {
	m := limitText.FindStringSubmatch(v)
	if m == nil {
		if _, err := strconv.Atoi(v); err == nil {
			return &limit{texts: []string{v + "/minute"}, shadow: true, notes: []string{"it has no period; the rule uses a minute, and is in shadow mode: set the period, then remove \"shadow: true\""}}
		}
		return unreadable("Sluice does not read %.80q as a limit", v)
	}
	count, number := strings.NewReplacer("_", "", ",", "").Replace(m[1]), int64(1)
	if m[2] != "" {
		number, _ = strconv.ParseInt(m[2], 10, 64)
	}
	p := period(number, m[3])
	if p == "" {
		return unreadable("Sluice does not read %.80q as a limit", v)
	}
	l := &limit{texts: []string{count + "/" + p}}
	l.readKey(strings.TrimSpace(m[4]))
	return l
}

// units has the lengths of units of time by singular name in lower case.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "millisecond": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"y": 365 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
}

var (
	lengthText = regexp.MustCompile(`^([0-9]*)\s*([a-z]+)$`)
	isoText    = regexp.MustCompile(`^P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)S)?)?$`)
)

// maxPeriod bounds the periods of limits.
const maxPeriod = 10 * 366 * 24 * time.Hour

// period returns n times the given unit in the form of a policy. The unit is a length of time such as "minute",
// "15m" or "PT1H"; for other texts, period returns "".
func period(n int64, unit string) string {
	length := lengthOf(unit)
	switch small := strings.ToLower(strings.TrimSpace(unit)); {
	case n == 1 && (small == "month" || small == "months" || small == "1 month" || small == "monthly" || small == "mo"):
		return "month"
	case length == 0 || n < 1 || n > int64(maxPeriod/length):
		return ""
	}
	return policyPeriod(time.Duration(n) * length)
}

// lengthOf returns the length of time that a text names, or 0.
func lengthOf(unit string) time.Duration {
	unit = strings.TrimSpace(unit)
	if m := isoText.FindStringSubmatch(unit); m != nil {
		var sum time.Duration
		for i, of := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
			v, _ := strconv.ParseInt(cmp.Or(m[i+1], "0"), 10, 32)
			sum += time.Duration(v) * of
		}
		return min(sum, maxPeriod)
	}
	m := lengthText.FindStringSubmatch(strings.ToLower(unit))
	if m == nil {
		return 0
	}
	of := units[m[2]]
	if of == 0 {
		of = units[strings.TrimSuffix(m[2], "s")]
	}
	v, err := strconv.ParseInt(cmp.Or(m[1], "1"), 10, 32)
	if err != nil || of == 0 || v > int64(maxPeriod/of) {
		return 0
	}
	return time.Duration(v) * of
}

// policyPeriod returns a length of time in the form of a policy.
func policyPeriod(d time.Duration) string {
	switch d {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	for _, u := range []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d%u.of == 0 {
			return fmt.Sprintf("%d%s", d/u.of, u.name)
		}
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}
