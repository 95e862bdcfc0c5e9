package policy

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/internal/usage"
	"github.com/sluicehq/sluice/policy/internal/money"
)

// ReadsResponse reports whether the cost is in the body of the response.
func (c *Cost) ReadsResponse() bool { return c.Tokens != "" || c.USD != "" || c.ResponseJSON != nil }

// tokenCount selects which tokens of a response a rule counts.
type tokenCount uint8

const (
	noTokens tokenCount = iota
	totalTokens
	uncachedTokens
	inputTokens
	outputTokens
)

var tokenCounts = []string{noTokens: "", totalTokens: "total", uncachedTokens: "uncached", inputTokens: "input", outputTokens: "output"}

// usageCost is a cost that the body of the response reports.
type usageCost struct {
	count         tokenCount    // which tokens the cost counts
	prices        *money.Prices // prices of tokens; nil: the cost is a number of tokens
	terms         []term        // the numbers of response_json, if the cost is not in tokens
	estimate      estimate
	keepsEstimate bool // see Cost.Unknown
	asksUsage     bool // see Cost.Usage
}

// term is a number of the response and its weight.
type term struct {
	path   int   // index in numbers
	weight int64 // in millionths
}

func (c *compiler) usageCost(in *Cost) *usageCost {
	u := &usageCost{estimate: c.estimate(&in.Estimate), keepsEstimate: c.choice("cost.unknown", in.Unknown, []string{"", "estimate"}) > 0,
		asksUsage: c.choice("cost.usage", in.Usage, []string{"", "ask"}) > 0}
	switch {
	case in.Tokens != "":
		u.count = tokenCount(c.choice("cost.tokens", in.Tokens, tokenCounts))
	case in.USD != "":
		c.choice("cost.usd", in.USD, []string{"", "prices"})
		if !c.priced {
			c.fail("cost.usd", `write for example prices: {"*": {input: 15, output: 75}} at the top of the document`, "the document has no prices")
		}
	case len(in.ResponseJSON) == 0:
		c.fail("cost.response_json", "write for example \"response_json: {usage.total_tokens: 1}\"", "response_json names no number")
	}
	if in.Max != 0 {
		c.between("cost.max", in.Max, math.MaxInt64)
	}
	for _, path := range sortedKeys(in.ResponseJSON) {
		u.terms = append(u.terms, term{c.numberAt(path), c.weight(path, in.ResponseJSON[path])})
	}
	return u
}

// mostWeight is the largest weight of a number.
const mostWeight = 1_000_000_000

// weight returns a weight in millionths.
func (c *compiler) weight(path string, in Decimal) int64 {
	digits, negative := strings.CutPrefix(string(in), "-")
	n, err := printable.ParseDecimal(digits)
	if err != nil || n > mostWeight*money.Millionths {
		c.fail(fmt.Sprintf("cost.response_json[%q]", path), "write a number such as 1, -1 or 0.25, with at most six decimals", "%s is not the weight of a number", spelling.Quote(string(in)))
	}
	if negative {
		return -n
	}
	return n
}

// numberAt returns the index of a path among the paths that the policy reads from responses.
func (c *compiler) numberAt(path string) int {
	if _, err := usage.Compile([]string{path}); err != nil {
		c.fail(fmt.Sprintf("cost.response_json[%q]", path), "write names joined by dots, as in usage.total_tokens", "%s is not the path of a number", spelling.Quote(path))
	}
	c.numbers = append(c.numbers, path)
	return len(usagePaths) + len(c.numbers) - 1
}

// tokenCost returns the cost of tokens: at a price or, without a price, the number of tokens that count.
func (u *usageCost) tokenCost(t money.Tokens, p *money.Price) int64 {
	switch {
	case p != nil:
		return p.Cost(t)
	case u.count == uncachedTokens:
		return max(t.Input-t.Cached, 0) + t.Output
	case u.count == inputTokens:
		return t.Input
	case u.count == outputTokens:
		return t.Output
	}
	return t.Input + t.Output
}

// text describes the cost in words.
func (u *usageCost) text() string {
	switch {
	case u.prices != nil:
		return "the price of the tokens that the response reports"
	case u.terms != nil:
		return "the numbers that the response reports"
	}
	return "the " + tokenCounts[u.count] + " tokens that the response reports"
}

// reported returns the cost that the response reports. found is false if the response lacks all numbers of the
// rule.
func (u *usageCost) reported(r *ResponseReader, p *money.Price) (cost int64, found bool) {
	if u.terms == nil {
		t, found := r.tokens()
		return u.tokenCost(t, p), found
	}
	var plus, minus money.Sum
	for _, one := range u.terms {
		n, ok := r.number(one.path)
		found = found || ok
		if one.weight < 0 {
			minus.Add(n, -one.weight)
		} else {
			plus.Add(n, one.weight)
		}
	}
	plus.Sub(minus)
	return plus.CeilDiv(money.Millionths), found
}

// The numbers by which APIs report tokens. All paths of a slot have the same meaning, in the formats of several
// APIs or in several events of one API.
const (
	promptSlot  = iota // all input
	inputSlot          // all input; in Anthropic's format, without readSlot and writtenSlot
	readSlot           // input from a cache, not included in inputSlot
	writtenSlot        // input that went into a cache, not included in inputSlot
	cachedSlot         // input from a cache, included in promptSlot or inputSlot
	outputSlot         // output, including reasoning if the API has no number for thoughtSlot
	thoughtSlot        // reasoning, not included in outputSlot
	toolSlot           // input from tools, not included in promptSlot
	slots
)

// usagePath is the path of a number of a slot.
type usagePath struct {
	path string
	slot int
}

var usagePaths = func() (all []usagePath) {
	add := func(slot int, prefixes []string, names ...string) {
		for _, prefix := range prefixes {
			for _, name := range names {
				all = append(all, usagePath{prefix + name, slot})
			}
		}
	}
	everywhere := []string{"usage.", "response.usage.", "message.usage."}
	add(promptSlot, everywhere, "prompt_tokens")
	add(inputSlot, everywhere, "input_tokens")
	add(readSlot, everywhere, "cache_read_input_tokens")
	add(writtenSlot, everywhere, "cache_creation_input_tokens")
	add(cachedSlot, everywhere, "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens")
	add(outputSlot, everywhere, "completion_tokens", "output_tokens")
	gemini := []string{"usageMetadata."}
	add(promptSlot, gemini, "promptTokenCount")
	add(cachedSlot, gemini, "cachedContentTokenCount")
	add(outputSlot, gemini, "candidatesTokenCount")
	add(thoughtSlot, gemini, "thoughtsTokenCount")
	add(toolSlot, gemini, "toolUsePromptTokenCount")
	ollama := []string{""}
	add(promptSlot, ollama, "prompt_eval_count")
	add(outputSlot, ollama, "eval_count")
	return all
}()

// numbers are the paths of the numbers that the rules of a policy read from responses.
type numbers struct {
	paths *usage.Paths
	names []string // the paths as text
}

// compileNumbers returns the numbers that the rules read from responses, or nil.
func (c *compiler) compileNumbers(p *Policy) *numbers {
	if !slices.ContainsFunc(p.rules, func(r rule) bool { return r.cost.usage != nil }) {
		return nil
	}
	paths := make([]string, 0, len(usagePaths)+len(c.numbers))
	for _, one := range usagePaths {
		paths = append(paths, one.path)
	}
	paths = append(paths, c.numbers...)
	all, err := usage.Compile(paths)
	if err != nil {
		return nil // numberAt has reported it
	}
	return &numbers{all, paths}
}

// ResponseReader reads the numbers that rules count from the body of a response, without delaying the body. It is not
// safe for concurrent use.
type ResponseReader struct {
	scanner usage.Scanner
	numbers *numbers
	given   map[string]int64 // numbers that the caller has read; if not nil, they replace the scanner's numbers
	// Interrupted reports that the response broke off, or that the client left before its end. The integration sets
	// it.
	Interrupted bool
}

// ReadsResponse reports whether a rule counts the request by the body of its response.
func (d *Decision) ReadsResponse() bool { return d.unsettled != nil && d.unsettled.reads != nil }

// AsksUsage reports whether a rule has "usage: ask" and the body lacks "stream_options": {"include_usage": true}. The
// integration should then add this member to the body.
func (d *Decision) AsksUsage() bool { return d.unsettled != nil && d.unsettled.asks }

// ReadResponse returns a reader for the response to the request, or nil if no rule reads the response. h is the head
// of the response. Write the body to the reader, and pass the reader to [Engine.Settle] in the [Outcome].
func (d *Decision) ReadResponse(h http.Header) *ResponseReader {
	if !d.ReadsResponse() {
		return nil
	}
	return d.unsettled.reads.reader(h)
}

// ReadResponse is [Decision.ReadResponse] for [Engine.SettleRequest].
func (p *Policy) ReadResponse(h http.Header) *ResponseReader {
	if p.numbers == nil {
		return nil
	}
	return p.numbers.reader(h)
}

func (n *numbers) reader(h http.Header) *ResponseReader {
	r := &ResponseReader{numbers: n}
	r.scanner.Reset(n.paths, h.Get("Content-Type"), h.Get("Content-Encoding"))
	return r
}

// number returns the number at the path with index i in numbers.
func (r *ResponseReader) number(i int) (n int64, found bool) {
	if r.given != nil {
		n, found = r.given[r.numbers.names[i]]
		return min(max(n, 0), usage.MaxNumber), found
	}
	return r.scanner.Number(i)
}

// Write reads a piece of the body. It never fails.
func (r *ResponseReader) Write(p []byte) (int, error) {
	r.scanner.Write(p)
	return len(p), nil
}

// Reasons why a response does not report its cost: see [Settlement].
const (
	unreadMissing     = "missing"     // the response has none of the numbers
	unreadInterrupted = "interrupted" // the response broke off
	unreadNone        = "no_body"     // the integration does not read responses, or the connection was taken over
)

// tokens returns the tokens that the response reports, if it reports any.
func (r *ResponseReader) tokens() (t money.Tokens, found bool) {
	var n [slots]int64
	var has [slots]bool
	for i, one := range usagePaths {
		if v, ok := r.number(i); ok {
			n[one.slot], has[one.slot], found = max(n[one.slot], v), true, true
		}
	}
	t.Written, t.Output = n[writtenSlot], n[outputSlot]+n[thoughtSlot]
	if t.Cached = n[cachedSlot]; !has[cachedSlot] {
		t.Cached = n[readSlot]
	}
	if t.Input = n[promptSlot] + n[toolSlot]; !has[promptSlot] {
		t.Input = n[inputSlot] + n[readSlot] + n[writtenSlot]
	}
	return t, found
}

// visibleCost estimates the cost from the numbers, events and text received so far.
func (u *usageCost) visibleCost(r *ResponseReader, a *reservation) int64 {
	t, _ := r.tokens()
	t.Input = max(t.Input, a.input)
	t.Output = max(t.Output, r.scanner.Events(), (r.scanner.Text()+bytesOfToken-1)/bytesOfToken)
	return u.tokenCost(t, a.price)
}

// finalCost returns the cost to charge for a response. The status is 0 if it is unknown, and reserved is the charge
// before the response. finalCost also returns why the response does not report the cost, or "".
func (u *usageCost) finalCost(r *ResponseReader, status int, a *reservation, reserved int64) (cost int64, unread string) {
	if r == nil || r.numbers != a.reads {
		return reserved, unreadNone
	}
	if r.given == nil {
		r.scanner.End()
	}
	reported, found := u.reported(r, a.price)
	interrupted := r.Interrupted && !r.scanner.Ended()
	switch unread = r.scanner.Unread(); {
	case found && !interrupted && !r.scanner.Pending():
		return reported, ""
	case interrupted:
		unread = unreadInterrupted
	case unread == "":
		unread = unreadMissing
	}
	if unread == usage.Encoded || unread == usage.Type || r.given != nil {
		return max(reported, reserved), unread
	}
	seen := max(reported, u.visibleCost(r, a))
	switch {
	case !interrupted && status < http.StatusBadRequest:
		return max(seen, reserved), unread // the response may hide reasoning, or the work goes on in the background
	case u.keepsEstimate || u.estimate.units > 0 || a.keeps || r.scanner.Pending():
		return max(reported, reserved), unread
	}
	return max(reported, min(seen, reserved)), unread
}
