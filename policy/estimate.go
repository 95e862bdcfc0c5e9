package policy

import (
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/money"
	"github.com/sluicehq/sluice/policy/internal/underway"
)

// Estimate is the cost that is charged before the response. It is a number, or, for a cost in tokens, in USD or by
// response_json, an estimate from the request. In JSON and YAML it is a number or an object.
//
// An estimate from the request is one token for each Bytes bytes of the body, plus the tokens of the output. If the
// request sets a maximum for the output, the estimate uses this maximum, or Output if that is smaller and not zero. If
// the request sets none, the estimate uses the first of the following that is not zero: Output, the field Most in the
// [Price] of the model, and 2000. An estimate above a limit is cut to the limit. A maximum that the request itself sets
// is not cut: if it is above the limit, the request never fits.
type Estimate struct {
	Units int64 `json:"-"`
	// Bytes is how many bytes of the body are estimated as one token: 3 if zero, which suits text. 1 gives the
	// highest estimate, because no text has more tokens than bytes.
	Bytes int64 `json:"bytes,omitempty"`
	// Output bounds the output in the estimate, in tokens. If it is zero, the estimate uses any maximum that the
	// request sets.
	Output int64 `json:"output,omitempty"`
}

// estimateObject is Estimate as a JSON object.
type estimateObject Estimate

func (e Estimate) MarshalJSON() ([]byte, error) {
	if e == (Estimate{Units: e.Units}) {
		return json.Marshal(e.Units)
	}
	return json.Marshal(estimateObject(e))
}

func (e *Estimate) UnmarshalJSON(data []byte) error {
	var o estimateObject
	if json.Unmarshal(data, &o.Units) != nil && json.Unmarshal(data, &o) != nil {
		return errors.New(`policy: an estimate is a whole number, or {"bytes": 3, "output": 2000}`)
	}
	*e = Estimate(o)
	return nil
}

const (
	bytesOfToken  = 3    // English, code and JSON have 3.4 to 3.6
	defaultOutput = 2000 // tokens
)

// estimate is a compiled [Estimate].
type estimate struct {
	units  int64 // 0: from the request
	bytes  int64
	output int64 // 0: as much as the request asks for
}

func (c *compiler) estimate(in *Estimate) (out estimate) {
	out = estimate{in.Units, in.Bytes, in.Output}
	if in.Units != 0 {
		c.between("cost.estimate", in.Units, math.MaxInt64)
		return out
	}
	if in.Bytes != 0 {
		c.between("cost.estimate.bytes", in.Bytes, 1<<20)
	} else {
		out.bytes = bytesOfToken
	}
	if in.Output != 0 {
		c.between("cost.estimate.output", in.Output, math.MaxInt32)
	}
	return out
}

// reservation is the estimate of a request under a rule that reads the response.
type reservation struct {
	reads      *numbers     // the numbers to read from the response, by the policy that has decided
	price      *money.Price // the price of its model; nil: the cost is a number of tokens
	input      int64        // tokens
	cost       int64        // the estimate
	uncut      int64        // the part of cost that is not cut to a limit, because the request asks for it
	omitsUsage bool         // the rule has "usage: ask", and the request does not ask for its usage
	keeps      bool         // a response without usage costs the estimate
	model      string       // the model as the request writes it; shares the memory of the request; empty if the rule does not read it
}

// demand has values of a request to a model that several rules may need. Each is read when the first rule needs it.
type demand struct {
	price  *money.Price // see priceOfModel; nil: not read
	output int64        // see outputAsked; -1: not read
}

// price returns the price of the request's model, by the prices of the policy.
func (in *input) price() *money.Price {
	if in.demand.price == nil {
		in.demand.price = in.priceOfModel(in.policy.prices)
	}
	return in.demand.price
}

// output returns the maximum of output tokens that the request sets, or 0.
func (in *input) output() int64 {
	if in.demand.output < 0 {
		in.demand.output = in.outputAsked()
	}
	return in.demand.output
}

// reserve returns the estimate of the request under a rule.
func (in *input) reserve(r *rule) (a reservation) {
	u := r.cost.usage
	a.reads, a.omitsUsage = in.policy.numbers, u.asksUsage && in.omitsUsage()
	if u.prices != nil {
		a.price = in.price()
	}
	if u.prices != nil || u.estimate.units == 0 { // the body is read anyway
		a.model = in.model()
	}
	if in.request.Cost > 1 { // the request counts as several, which fit together or not at all
		a.uncut = math.MaxInt64
	}
	if u.estimate.units > 0 || in.request.Subject != nil {
		a.cost = max(u.estimate.units, 1)
		return a
	}
	n, known := in.x.BodySize()
	if !known && !in.x.BrokeOff || in.x.BodyEncoded() {
		a.cost, a.keeps = math.MaxInt64, true // cut to the limit
		return a
	}
	a.input = (n + u.estimate.bytes - 1) / u.estimate.bytes
	a.keeps = in.x.BodyMayBeTrue("background")
	wanted := in.output()
	output := u.output(wanted, a.price)
	if output == wanted {
		a.uncut = max(a.uncut, u.tokenCost(money.Tokens{Output: wanted}, a.price))
	}
	tokens := money.Tokens{Input: a.input, Output: output}
	if u.estimate.bytes == 1 && a.price != nil && a.price.Written > a.price.Input {
		tokens.Written = a.input // a hard estimate covers input that is written to a cache
	}
	a.cost = u.tokenCost(tokens, a.price)
	if a.price == nil {
		a.cost = max(a.cost, 1) // a cost of 0 passes whatever the key owes
	}
	if wanted > 0 && u.estimate.bytes == 1 && u.estimate.output == 0 {
		a.uncut = max(a.uncut, a.cost)
	}
	return a
}

// output returns the estimated tokens of output. wanted is the maximum that the request sets, or 0.
func (u *usageCost) output(wanted int64, p *money.Price) int64 {
	switch most := u.estimate.output; {
	case wanted > 0 && (most == 0 || wanted <= most):
		return wanted
	case most > 0:
		return most
	case p != nil && p.Most > 0:
		return p.Most
	}
	return defaultOutput
}

// within returns the units that are charged to a limit for a cost: at most the limit, unless the request itself
// asks for more.
func (a *reservation) within(cost int64, p *sluice.Plan) int64 {
	units := money.Units(cost, p)
	if money.Units(a.uncut, p) > p.Capacity {
		return units
	}
	return max(min(units, p.Capacity), -p.Capacity)
}

// maxChoices is the maximum number of answers to one request that an estimate takes into account.
const maxChoices = 128

// The fields of requests that set the maximum of the output and the number of answers. Gemini accepts both
// spellings of each of its names.
var (
	outputMaxima = append(ofGemini("maxOutputTokens", "max_output_tokens"), "max_completion_tokens", "max_tokens", "max_output_tokens", "options[num_predict]")
	choiceCounts = append(ofGemini("candidateCount", "candidate_count"), "n", "best_of")
)

func ofGemini(names ...string) (fields []string) {
	for _, name := range names {
		fields = append(fields, "generationConfig["+name+"]", "generation_config["+name+"]")
	}
	return fields
}

// outputAsked reads the maximum of the output from the body, for all answers that the request asks for.
func (in *input) outputAsked() (n int64) {
	for _, name := range outputMaxima {
		if number, ok := in.x.LargestBodyField(name); ok && number > 0 {
			n = max(n, min(number, math.MaxInt32))
		}
	}
	most := int64(1)
	for _, name := range choiceCounts {
		if choices, ok := in.x.LargestBodyField(name); ok {
			most = max(most, min(choices, maxChoices))
		}
	}
	return n * most
}

// omitsUsage reports whether the request asks for a stream in OpenAI's format, and has no stream_options.
func (in *input) omitsUsage() bool {
	return strings.HasSuffix(in.request.Path, "/completions") && in.x.BodyIsTrue("stream") && !in.x.HasBodyField("stream_options")
}

// priceOfModel returns the price of the model that the request asks for: in its body, or in the path, as in
// Gemini's and Azure's APIs. If the request names two models, each price is the higher of the two.
func (in *input) priceOfModel(p *money.Prices) *money.Price {
	inPath := modelInPath(in.request.Path)
	inBody, _, ok := in.x.BodyField("model")
	inBody = strings.TrimPrefix(inBody, "models/")
	switch {
	case inPath == "", ok && strings.EqualFold(inBody, inPath):
		return p.Of(inBody)
	case !ok && !in.x.HasBodyField("model"):
		return p.Of(inPath)
	}
	higher := *p.Of(inPath)
	higher.Raise(p.Of(inBody))
	return &higher
}

// model returns the model that the request asks for, or "".
func (in *input) model() string {
	if name := modelInPath(in.request.Path); name != "" {
		return name
	}
	name, _, _ := in.x.BodyField("model")
	return name
}

// modelInPath returns NAME of a path such as /v1beta/models/NAME:generateContent or
// /openai/deployments/NAME/chat/completions, or "".
func modelInPath(path string) string {
	if _, name, found := strings.Cut(path, "/deployments/"); found {
		name, _, _ = strings.Cut(name, "/")
		return name
	}
	_, name, _ := strings.Cut(path, "/models/")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// estimates is the counter of the estimates of requests under way. It charges nothing.
type estimates struct {
	noCounter
	underWay *underway.Estimates
}

// join shortens the wait of a limit that is exceeded only because of requests under way.
func (e *estimates) join(c *charges, i int, r *Result) (closed bool) {
	charge, receipt := &c.list[i], &c.receipts[i]
	if receipt.Fits || receipt.Origin == sluice.ByOnError || r.RetryAfter == sluice.Never {
		return false
	}
	remaining, _, _ := charge.Plan.Answer(&receipt.Receipt, 1)
	lacks := charge.Cost - remaining + charge.Plan.Owed(&receipt.Receipt)
	if lacks < 1 {
		return false // another counter denies
	}
	if wait, covered := e.underWay.Wait(charge, lacks); covered && wait < r.RetryAfter {
		r.RetryAfter, r.UnderWay = wait, true
	}
	return false
}

// keep adds the estimates of an allowed request.
func (e *estimates) keep(w *work, d *Decision) {
	if d.unsettled == nil || !w.request.Ends {
		return
	}
	for i := range d.unsettled.open {
		if o := &d.unsettled.open[i]; o.cost.usage != nil {
			o.pending = e.underWay.Add(&o.Charge, d.unsettled.taken, o.lasts)
		}
	}
}

// ended removes the estimates of a request that is no longer under way, whether or not it is settled.
func (e *Engine) ended(d *Decision) {
	if d.unsettled != nil {
		e.underWay.Remove(d.unsettled.estimates())
	}
}

// estimates returns the estimates of the charges that are not settled.
func (u *unsettled) estimates() (all []*underway.Estimate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.open {
		all = append(all, u.open[i].pending)
	}
	return all
}
