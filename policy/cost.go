package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/internal/spelling"
)

// Cost is what a request costs under a rule: a number, the value of a header of the request, or a cost from its
// response. In JSON and YAML it is a number in the first case, and otherwise an object.
type Cost struct {
	// Default is the cost without the header: 1 if zero.
	Default int64 `json:"default,omitempty"`
	// Header is the request header that contains the cost. If it has several values, the largest counts. A value
	// above Max counts as Max, 0 counts as 1, and a value that is not a whole number counts as Default.
	Header string `json:"header,omitempty"`
	// Max is the largest cost. It is required if the cost comes from a header of the request or the response.
	Max int64 `json:"max,omitempty"`
	// ResponseHeader is the response header that contains the cost. If it has several values, the largest counts. A
	// value above Max counts as Max, and with 0 the request costs nothing. If the value is missing or not a whole
	// number, the cost is the estimate. Clients see this header.
	ResponseHeader string `json:"response_header,omitempty"`
	// ResponseBytes is the number of bytes of the response's body that cost one unit; the cost is rounded up. An
	// upgraded connection costs the estimate. If Max is set, a cost above Max counts as Max.
	ResponseBytes int64 `json:"response_bytes,omitempty"`
	// Tokens counts the tokens of language models that the response reports: "total", "uncached"
	// (without the input that came from the provider's cache), "input" or "output". The formats
	// are those of OpenAI, Anthropic, Gemini and Ollama, and of compatible servers.
	Tokens string `json:"tokens,omitempty"`
	// USD makes the cost an amount of money. Its only value is "prices": the cost is computed from the tokens and from
	// the Prices of the [Document]. The limits of the rule are then in USD.
	USD string `json:"usd,omitempty"`
	// ResponseJSON makes the cost a sum of numbers in the JSON of the response. It maps the path of each number,
	// such as "usage.total_tokens", to its weight, which may be negative. If a path occurs several times, as in
	// server-sent events or JSON lines, its last number counts. The sum is rounded up.
	ResponseJSON map[string]Decimal `json:"response_json,omitempty"`
	// Estimate is charged before the response. After the response, the difference between the estimate and the final
	// cost is charged or given back. If the difference does not fit, the key owes the rest: its requests are denied
	// until the debt has drained or expired.
	Estimate Estimate `json:"estimate,omitzero"`
	// Unknown sets what is charged for a response that breaks off, and for a complete response with a status of 400 or
	// above that does not report its cost. By default, this is the cost of the part that was received, but at most the
	// estimate. It is the estimate if Unknown is "estimate", if Estimate is a number, if the response cannot be read,
	// or if the model may continue in the background. It is never less than the usage that was reported. For a complete
	// response with a status below 400 that does not report its cost, the larger of two amounts is charged: the
	// estimate, or the cost computed from the part that was received.
	Unknown string `json:"unknown,omitempty"`
	// Usage is "ask" to add stream_options.include_usage to streamed requests in OpenAI's format that
	// do not set stream_options: without it the response reports no tokens. Clients then receive one more event.
	Usage string `json:"usage,omitempty"`
}

// costObject is Cost as a JSON object.
type costObject Cost

func (c Cost) MarshalJSON() ([]byte, error) {
	if rest := c; c.isPlain(&rest) {
		return json.Marshal(c.Default)
	}
	return json.Marshal(costObject(c))
}

// isPlain reports whether the cost is only a number. rest is a copy of c, which isPlain changes.
func (c *Cost) isPlain(rest *Cost) bool {
	rest.Default = 0
	return rest.IsZero()
}

func (c *Cost) UnmarshalJSON(data []byte) error {
	var o costObject
	if json.Unmarshal(data, &o.Default) != nil {
		if err := json.Unmarshal(data, &o); err != nil {
			return errors.New(`policy: a cost is a whole number, or {"header": "X-Cost", "max": 100}`)
		}
	}
	*c = Cost(o)
	return nil
}

// IsZero reports whether nothing is set.
func (c Cost) IsZero() bool { return reflect.ValueOf(c).IsZero() }

// Count selects the requests that a rule counts in the end. Until the response, all requests are counted, so that no
// client can exceed the limit with simultaneous requests. The units of requests that do not count are refunded after
// the response: see [Engine.Settle]. A request with an unknown outcome counts.
type Count struct {
	// Status lists the response statuses with which a request counts, such as "401", or "4xx" for a whole class.
	// Empty means all. The status of an upgraded connection is 101.
	Status []Status `json:"status,omitempty"`
	// UnlessHeader is a header of the response. With the value 1, true or yes the request does not count, at any
	// status. Clients see this header.
	UnlessHeader string `json:"unless_header,omitempty"`
}

// Status is the status of a response, or a class of statuses, as text: "401", "4xx". In JSON, a single status is a
// number.
type Status string

func (s Status) MarshalJSON() ([]byte, error) {
	if n, err := strconv.Atoi(string(s)); err == nil && strconv.Itoa(n) == string(s) {
		return json.Marshal(n)
	}
	return json.Marshal(string(s))
}

func (s *Status) UnmarshalJSON(data []byte) error {
	var number int
	if json.Unmarshal(data, &number) == nil {
		*s = Status(strconv.Itoa(number))
		return nil
	}
	if json.Unmarshal(data, (*string)(s)) != nil {
		return errors.New(`policy: a status is a number such as 401, or a class such as "4xx"`)
	}
	return nil
}

func (c *Count) isZero() bool { return len(c.Status) == 0 && c.UnlessHeader == "" }

// cost is a compiled [Cost].
type cost struct {
	header         string // canonical name of the request header with the cost
	fixed          int64  // the default if the header is missing, or the estimate of a response
	max            int64
	responseHeader string // canonical name of the response header with the cost
	bytes          int64  // how many bytes of the response's body cost a unit
	usd            bool   // the cost is in micro-USD, by the prices of the policy
	unit           Unit
	usage          *usageCost
	varies         bool // the cost depends on the request: it has a header or usage
}

func (c *compiler) cost(in *Cost) cost {
	if in.ResponseHeader != "" || in.ResponseBytes != 0 || in.ReadsResponse() {
		return c.costFromResponse(in)
	}
	out := cost{fixed: cmp.Or(in.Default, 1), max: in.Max}
	switch {
	case in.Estimate != Estimate{}:
		c.fail("cost.estimate", "add \"response_header: X-Cost\" or \"tokens: total\"", "an estimate needs a cost that the response reports")
	case in.Unknown != "" || in.Usage != "":
		c.fail("cost", "add \"tokens: total\"", "the settings \"unknown\" and \"usage\" need a cost in the body of the response")
	case in.Header == "" && in.Max != 0:
		c.fail("cost", "write for example \"header: X-Cost\", or \"cost: 5\" for all", "cost has no header")
	case in.Header == "":
		c.between("cost", out.fixed, math.MaxInt64)
	default:
		c.costFromHeader("default", out.fixed, in.Max)
	}
	out.header = c.canonicalHeader("cost.header", in.Header)
	return out
}

// costFromResponse compiles a cost that the response reports.
func (c *compiler) costFromResponse(in *Cost) cost {
	out := cost{fixed: cmp.Or(in.Estimate.Units, 1), max: in.Max, bytes: in.ResponseBytes}
	var sources []string
	for _, s := range []setting{
		{"header", in.Header != ""}, {"response_header", in.ResponseHeader != ""}, {"response_bytes", in.ResponseBytes != 0},
		{"tokens", in.Tokens != ""}, {"usd", in.USD != ""}, {"response_json", in.ResponseJSON != nil},
	} {
		if s.set {
			sources = append(sources, s.name)
		}
	}
	switch {
	case len(sources) > 1:
		c.fail("cost."+sources[0], "keep one of them, or use a rule for each", "cost has both %s and %s", sources[0], sources[1])
	case in.Default != 0:
		c.fail("cost.default", fmt.Sprintf("write \"estimate: %d\"", in.Default), "the charge before the response is the estimate")
	case in.ReadsResponse():
		out.usage, out.usd = c.usageCost(in), in.USD != ""
	case in.Estimate.Bytes != 0 || in.Estimate.Output != 0:
		c.fail("cost.estimate", "write a number", "an estimate from the request is for a cost in tokens, in USD or by response_json")
	case in.ResponseHeader == "" && in.Max == 0:
		c.between("cost.response_bytes", in.ResponseBytes, math.MaxInt64)
		c.between("cost.estimate", out.fixed, math.MaxInt64)
	case in.ResponseHeader == "":
		c.between("cost.response_bytes", in.ResponseBytes, math.MaxInt64)
		c.costFromHeader("estimate", out.fixed, in.Max)
	default:
		c.costFromHeader("estimate", out.fixed, in.Max)
	}
	out.responseHeader = c.canonicalHeader("cost.response_header", in.ResponseHeader)
	return out
}

// costFromHeader checks two fields of a cost from a header or a body: max, and the field called name, which is the
// default or the estimate.
func (c *compiler) costFromHeader(name string, without, most int64) {
	switch {
	case most == 0:
		c.fail("cost", "write for example \"max: 100\"", "a cost from a header needs a max")
	case without > most && most > 0:
		c.fail("cost", fmt.Sprintf("lower %s or raise max", name), "cost.%s is %d, and cost.max only %d", name, without, most)
	default:
		c.between("cost.max", most, math.MaxInt64)
		c.between("cost."+name, without, math.MaxInt64)
	}
}

// counting compiles which requests count, or returns nil if all do.
func (c *compiler) counting(in *Count) *counting {
	if in.isZero() {
		return nil
	}
	out := new(counting)
	for i, s := range in.Status {
		field := fmt.Sprintf("count.status[%d]", i)
		r, ok := parseStatus(string(s))
		switch {
		case !ok:
			c.fail(field, "write it as in 401, or 4xx for a whole class", "%s is not the status of a response", spelling.Quote(string(s)))
		case slices.Contains(out.status, r):
			c.fail(field, "remove one of them", "count has the status %s twice", s)
		}
		out.status = append(out.status, r)
	}
	out.unless = c.canonicalHeader("count.unless_header", in.UnlessHeader)
	return out
}

// parseStatus reads a single status (101, or 200 to 599) or a class of statuses. No informational status but 101
// ends a request.
func parseStatus(s string) (r statusRange, ok bool) {
	if len(s) != 3 || s[0] < '1' || s[0] > '5' {
		return r, false
	}
	if s[1:] == "xx" {
		r.first = int(s[0]-'0') * 100
		return statusRange{r.first, r.first + 99}, true
	}
	n, err := strconv.Atoi(s)
	return statusRange{n, n}, err == nil && (n == http.StatusSwitchingProtocols || n >= http.StatusOK)
}

// checkOutcome complains about a leaky bucket in a rule that depends on the outcome.
func (c *compiler) checkOutcome(r *rule) {
	if r.algorithm != sluice.LeakyBucket || !r.settles() {
		return
	}
	field := "count"
	if r.counts == nil {
		field = "cost"
	}
	c.fail(field, "use another algorithm", "a leaky_bucket assigns each request a turn, which the response cannot take back")
}

// fromHeader returns the cost in the header of a request. A value above max counts as max, 0 counts as 1, and a value
// that is not a whole number counts as the default. If there are several values, the largest counts.
func (c *cost) fromHeader(h http.Header) int64 {
	most := int64(0)
	for _, v := range h[c.header] {
		one := c.fixed
		if n, ok := number(v); ok {
			one = max(n, 1)
		}
		most = max(most, min(one, c.max))
	}
	if most == 0 {
		return c.fixed
	}
	return most
}

// number reads a whole number in a header. A number that is too large for an int64 becomes the largest int64.
func number(s string) (n int64, ok bool) {
	if s = strings.TrimSpace(s); !printable.Digits(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

// times returns n times one, the cost of a single request. If the product is too large, it returns a cost that
// never fits.
func times(one, n int64) int64 {
	if one > math.MaxInt64/n {
		return math.MaxInt64
	}
	return one * n
}

// atMost returns how much of the reported cost is charged in all. estimate is the part that was charged before the
// response.
func (c *cost) atMost(reported, estimate int64) int64 {
	if c.max == 0 || !c.isReported() || reported <= estimate {
		return reported
	}
	return min(reported, max(c.max, estimate))
}

// settles reports whether the rule depends on the outcome.
func (r *rule) settles() bool { return r.counts != nil || r.cost.isReported() }

// counting selects the requests that count.
type counting struct {
	status []statusRange // empty: all
	unless string        // canonical name of a header field
}

// statusRange is a status, or a class of statuses.
type statusRange struct{ first, last int }

func (s statusRange) String() string {
	if s.last > s.first {
		return fmt.Sprintf("%dxx", s.first/100)
	}
	return strconv.Itoa(s.first)
}

func (c *counting) has(o *Outcome) bool {
	switch {
	case o.Verdict != ByResponse:
		return o.Verdict == Counts
	case o.Status == 0:
		return true
	case c.unless != "" && slices.ContainsFunc(o.Header[c.unless], isYes):
		return false
	}
	return len(c.status) == 0 || slices.ContainsFunc(c.status, func(r statusRange) bool {
		return r.first <= o.Status && o.Status <= r.last
	})
}

// isYes reports whether the value of a header means yes.
func isYes(s string) bool {
	s = strings.TrimSpace(s)
	return s == "1" || strings.EqualFold(s, "true") || strings.EqualFold(s, "yes")
}

// isReported reports whether the response reports the cost.
func (c *cost) isReported() bool { return c.responseHeader != "" || c.bytes > 0 || c.usage != nil }

// after returns the cost according to the outcome. It is the estimate if the outcome reports no cost. known is false
// if the outcome does not have the cost yet.
func (c *cost) after(o *Outcome, estimate int64) (cost int64, known bool) {
	switch {
	case !c.isReported():
		return estimate, true
	case o.Cost != 0:
		return max(o.Cost, 0), true
	case c.responseHeader != "":
		return c.ofResponse(o, estimate)
	case o.Status == 0 && o.Bytes == 0, o.Status == http.StatusSwitchingProtocols:
		return estimate, true
	case o.Bytes < 0:
		return 0, false
	}
	units := o.Bytes / c.bytes
	if o.Bytes%c.bytes > 0 {
		units++
	}
	return units, true
}

// ofResponse returns the largest cost in the header of a response. Values that are not whole numbers are ignored.
// While the body has not ended, a trailer may still have the cost.
func (c *cost) ofResponse(o *Outcome, estimate int64) (cost int64, known bool) {
	for _, v := range o.Header[c.responseHeader] {
		if n, ok := number(v); ok {
			cost, known = max(cost, n), true
		}
	}
	if !known {
		return estimate, o.Bytes >= 0
	}
	return cost, true
}

// addUp adds costs. A sum that is too large becomes the largest cost, which never fits.
func addUp(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < -math.MaxInt64-b:
		return -math.MaxInt64
	}
	return a + b
}
