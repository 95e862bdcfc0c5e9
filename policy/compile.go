package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// maxKeyParts is the maximum number of parts of a key. More would make keys hard to look up and to read.
const maxKeyParts = 8

// Compile checks a document and compiles it to a policy. The policy keeps the document's rules, overrides and
// subjects, so do not change them afterwards. The error is an [Errors] that lists the problems.
func Compile(doc Document) (*Policy, error) { return CompileAt(doc, nil) }

// CompileAt is Compile for a document that comes from a file. Problems and warnings contain the file and the line that
// position returns for the path of a field (see [Problem]). A nil position is not called.
func CompileAt(doc Document, position func(path string) (file string, line int)) (*Policy, error) {
	c := newCompiler(position)
	p := c.compile(&doc)
	if len(c.problems) > 0 {
		sortProblems(c.problems)
		return nil, c.problems
	}
	p.warnings = p.suspicions(position)
	return p, nil
}

// compiler checks a document, and collects all problems. Its methods return a zero value, or false, for a field that
// they have complained about.
type compiler struct {
	where     func(path string) (file string, line int)
	list      string // the list with the current item: "rules", "overrides" or "subjects"; empty for the document itself
	item      int    // the index of the current item
	rule      string // the name of the rule to which the item belongs
	problems  Errors
	texts     map[string]sluice.Limit
	plans     map[sluice.Limit]*sluice.Plan
	kept      map[keptKey]*sluice.Plan
	limitSets map[limitsKey][]limit
	effects   map[effectKey]*resolved
	names     map[string]int // the index of each rule
	key       parts.Keys     // the key of the current override
	now       int64          // in microseconds since the Unix epoch
	endings   int            // see ended
	lists     map[string]*clientSet
	listsUsed map[string]bool
	numbers   []string // paths of numbers in responses, in addition to usagePaths
	priced    bool     // the document has prices
	anyCase   bool     // paths that differ only in case are equal
}

func newCompiler(where func(path string) (file string, line int)) *compiler {
	return &compiler{
		where:     where,
		texts:     make(map[string]sluice.Limit),
		limitSets: make(map[limitsKey][]limit),
		effects:   make(map[effectKey]*resolved),
		plans:     make(map[sluice.Limit]*sluice.Plan),
		kept:      make(map[keptKey]*sluice.Plan),
		names:     make(map[string]int),
		now:       time.Now().UnixMicro(),
		listsUsed: make(map[string]bool),
	}
}

func (c *compiler) compile(doc *Document) *Policy {
	p := &Policy{
		trusted:    c.prefixes(doc.TrustedProxies),
		ipv6Prefix: c.ipv6Prefix(doc.IPv6Prefix),
		ignoreCase: doc.IgnoreCase,
		bodyLimit:  c.bodyLimit(doc.BodyLimit),
		shadowEnds: c.shadowEnds(doc.Shadow),
		fields:     Fields(c.choice("fields", doc.Fields, fieldNames)),
		cors:       c.cors(&doc.CORS),
		answers:    c.answers(doc.Answers),
		rules:      make([]rule, len(doc.Rules)),
		byName:     c.names,
	}
	c.anyCase = doc.IgnoreCase
	byDefault := c.ambiguous(doc.Ambiguous)
	c.tierSource(p, &doc.Tiers)
	c.readLists(doc.Lists)
	p.prices = c.prices(&doc.Prices)
	c.priced = len(doc.Prices.Models) > 0 || doc.Prices.File != ""
	c.list = "rules"
	for i := range doc.Rules {
		c.item, c.rule = i, ""
		p.rules[i] = c.compileRule(p, &doc.Rules[i], byDefault)
	}
	p.numbers = c.compileNumbers(p)
	c.checkAllShownNames(p)
	c.keep(p)
	p.listsUnused = c.unused()
	p.overrides = c.overrides(p, doc.Overrides)
	if doc.Tiers.Subject == "" || p.tierSubject != nil { // otherwise an error has been reported
		p.subjects = c.tierSubjects(p, doc.Subjects)
	}
	p.adapts = slices.ContainsFunc(p.rules, func(r rule) bool { return r.adaptive != nil })
	p.queueless = !slices.ContainsFunc(p.rules, func(r rule) bool { return r.algorithm == sluice.LeakyBucket })
	if len(c.problems) == 0 {
		p.index = newIndex(p.rules, p.ignoreCase)
		p.reads, p.requestParts = p.fieldsRead(), p.requestPartsOf()
		p.identify(*doc)
	}
	return p
}

func (c *compiler) compileRule(p *Policy, r *Rule, byDefault ambiguous) rule {
	c.name(r)
	out := rule{
		index: c.item, name: r.Name, shadow: r.Shadow, exempt: r.Exempt, source: r.Source,
		match: c.patterns(r.Match), hosts: c.hosts(r.Hosts), headers: c.headers(r.Headers),
		attributes: c.attributes(r.Attributes), bodies: c.bodies(r.Body),
	}
	out.readsBody = len(out.bodies) > 0
	p.readsBody = p.readsBody || out.readsBody
	if c.where != nil {
		out.file, out.line = c.where(c.path(""))
	}
	out.clients, out.notClients, out.block = c.clients("clients", r.Clients), c.clients("not_clients", r.NotClients), r.Block
	out.answer = answerForm(c.choice("answer", r.Answer, answerForms))
	p.forms = p.forms || out.answer != answerPlain
	out.class = adaptive.Class(c.choice("class", r.Class, classNames))
	out.classifies = r.OnlyClassifies()
	if r.Exempt || r.Block || out.classifies {
		c.checkUncounted(r)
		return out
	}
	out.key = c.parts("key", r.Key, nil)
	owner := len(out.key)
	out.together = c.together(r, out.key)
	if !r.Share.isZero() {
		out.key = c.parts("share.by", r.Share.By, out.key)
	}
	if r.Distinct != (Distinct{}) {
		c.distinct(r, &out)
	}
	if out.keyStart = r.Name; len(out.key) == 0 {
		out.keyStart += "/"
	}
	out.missing = missing(c.choice("missing", r.Missing, missingNames))
	out.algorithm, out.calendar = sluice.Algorithm(c.choice("algorithm", r.Algorithm, algorithmNames)), r.Algorithm == ""
	out.onError = sluice.OnError(c.choice("on_error", r.OnError, onErrorNames))
	if out.byDefault = r.OnError == ""; out.byDefault {
		out.onError = defaultOnError(out.hosts, out.match, r.Shadow)
	}
	out.strict = cmp.Or(c.ambiguous(r.Ambiguous), byDefault, defaultAmbiguous(&out)) == refuseAmbiguous
	out.rollout = c.enforce(r)
	if out.show = showKey(c.choice("show_key", r.ShowKey, showKeyNames)); r.ShowKey == "" {
		out.show = defaultShow(out.key)
	}
	if out.cost = c.cost(&r.Cost); out.cost.usd {
		out.cost.usage.prices = p.prices
	}
	out.cost.unit = unitOfCost(&r.Cost)
	out.cost.varies = out.cost.header != "" || out.cost.usage != nil
	out.marks = c.over(r, &out)
	p.marks = p.marks || out.marks
	out.counts = c.counting(&r.Count)
	out.lock = c.penalty(&r.Penalty)
	c.checkOutcome(&out)
	out.consistency = c.consistency(r, &out)
	p.settles = p.settles || out.settles()
	if r.Share.isZero() {
		c.limitsOf(p, r, &out)
	} else {
		c.sharing(p, r, &out, owner)
	}
	if out.needs().Has("route") && len(out.match) == 0 {
		c.fail("key", "list the routes under match, or use host or method", "the part \"route\" needs a rule with match")
	}
	out.counters = out.kinds()
	out.folds = out.key.Any((*parts.Part).Folds)
	out.needsBody = out.readsBody || out.needs().Any((*parts.Part).ReadsBody) || len(r.Tiers)+len(r.Share.Weights) > 0 && p.tierReadsBody()
	out.readsBody = out.needsBody || out.cost.usage != nil && out.cost.usage.estimate.units == 0
	p.readsBody = p.readsBody || out.readsBody
	return out
}

// name checks the name of a rule.
func (c *compiler) name(r *Rule) {
	if r.Name == "" {
		c.fail("", "write \"name: …\": keys and responses contain it", "the rule has no name")
		return
	}
	if !c.checkName("name", "name", r.Name) {
		return
	}
	c.rule = r.Name
	if first, twice := c.names[r.Name]; twice {
		c.fail("name", "give it another name", "two rules have this name, %s", c.first(first))
		return
	}
	c.names[r.Name] = c.item
}

// limitsOf compiles the rule's own limits and the limits of its tiers.
func (c *compiler) limitsOf(p *Policy, r *Rule, out *rule) {
	ofTier := c.limits
	switch {
	case r.InFlight.Auto:
		c.adaptive(r, out)
		return
	case r.InFlight != InFlight{}:
		ofTier = c.tierPermits
		c.inFlight(r, out)
	case out.distinct && r.Distinct.Limit == "": // an error has been reported
	case out.distinct:
		out.own = resolved{limits: c.limits("distinct.limit", []string{r.Distinct.Limit}, out), from: "rule", source: r.Source}
	case r.Limit == "" && len(r.Limits) == 0:
		c.fail("", "write for example \"limit: 100/minute\"", "the rule has no limit")
	default:
		out.own = resolved{limits: c.ownLimits(r.Limit, r.Limits, out), from: "rule", source: r.Source}
	}
	if len(r.Tiers) == 0 {
		return
	}
	if p.tierFrom == nil && p.tierSubject == nil {
		c.fail("tiers", "write for example \"tiers: {from: header:X-Plan}\" at the top of the document", "the source of a request's tier is missing")
	}
	for _, name := range sortedKeys(r.Tiers) {
		field := fmt.Sprintf("tiers[%q]", name)
		if !c.checkName(field, "tier", name) {
			continue
		}
		tier := p.canonicalTier(name)
		if out.tiers.limits(tier) != nil {
			c.fail(field, "keep one of them", "the tier %s cannot be distinguished from another of the rule", spelling.Quote(name))
		}
		if len(r.Tiers[name]) == 0 {
			c.fail(field, "write for example \"1000/minute\", or a number in a rule with in_flight", "the tier %s has no limit", spelling.Quote(name))
			continue
		}
		out.tiers = append(out.tiers, tierLimits{tier, resolved{limits: ofTier(field, r.Tiers[name], out), from: "tier:" + name, source: r.Source}})
	}
	slices.SortFunc(out.tiers, func(a, b tierLimits) int { return strings.Compare(a.tier, b.tier) })
}

// defaultAmbiguous returns the default of ambiguous. Rules that count by a body mostly guard accounts, and honest
// clients send the names of accounts in a form that all servers read alike.
func defaultAmbiguous(r *rule) ambiguous {
	if len(r.bodies) > 0 || r.needs().Any((*parts.Part).ReadsBody) {
		return refuseAmbiguous
	}
	return chargeAmbiguous
}

// OnlyClassifies reports whether a rule has a class and no limit of any kind, and neither exempts nor blocks.
func (r *Rule) OnlyClassifies() bool {
	return r.Class != "" && r.Limit == "" && len(r.Limits) == 0 && r.InFlight == InFlight{} && r.Distinct == Distinct{} && r.Share.isZero() && !r.Exempt && !r.Block
}

// checkUncounted complains about settings that have no meaning in a rule that exempts, blocks or only classifies.
func (c *compiler) checkUncounted(r *Rule) {
	hint, kind := "remove \"exempt\" if the rule is to count", "an exempt rule"
	switch {
	case r.Block:
		hint, kind = "remove \"block\" if the rule is to count", "a blocking rule"
	case !r.Exempt:
		hint, kind = "write for example \"limit: 100/minute\" if the rule is to count", "a rule with a class and no limit"
	}
	if r.Exempt && r.Block {
		c.fail("block", "remove one of them", "a rule either exempts or blocks")
	}
	c.without([]setting{
		{"limit", r.Limit != ""}, {"limits", len(r.Limits) > 0}, {"in_flight", r.InFlight != InFlight{}}, {"distinct", r.Distinct != Distinct{}}, {"key", len(r.Key) > 0}, {"together", len(r.Together) > 0}, {"missing", r.Missing != ""},
		{"ambiguous", r.Ambiguous != ""}, {"algorithm", r.Algorithm != ""}, {"tiers", len(r.Tiers) > 0}, {"share", !r.Share.isZero()}, {"cost", !r.Cost.IsZero()},
		{"answer", r.Answer != "" && r.Exempt}, {"over", r.Over != ""},
		{"count", !r.Count.isZero()}, {"penalty", r.Penalty != Penalty{}},
		{"on_error", r.OnError != ""}, {"consistency", r.Consistency != ""}, {"shadow", r.Shadow && !r.Block}, {"show_key", r.ShowKey != ""}, {"enforce", r.Enforce != ""},
	}, hint, kind+" counts nothing and has no %s")
}

// setting is the name of a field of a rule, and whether the field is set.
type setting struct {
	name string
	set  bool
}

// without complains about fields that are set although another setting of the rule makes them meaningless. The
// message has a %s for the field's name.
func (c *compiler) without(fields []setting, hint, message string) {
	for _, f := range fields {
		if f.set {
			c.fail(f.name, hint, message, f.name)
		}
	}
}

// together returns the indexes of the key parts that are the hash tag.
func (c *compiler) together(r *Rule, key parts.List) (tag []int) {
	for n, name := range r.Together {
		i := key.Index(name)
		if i >= 0 && !slices.Contains(tag, i) {
			tag = append(tag, i)
			continue
		}
		field := fmt.Sprintf("together[%d]", n)
		switch {
		case i >= 0:
			c.fail(field, "remove one of them", "together has the part %s twice", spelling.Quote(name))
		case len(r.Key) == 0:
			c.fail(field, "remove it: all requests of the rule share one key", "together needs a key")
		case !slices.Contains(r.Key, name): // otherwise an error about the key has been reported
			c.fail(field, spelling.Suggest(name, key.Names()), "%s in together is not a part of the key", spelling.Quote(name))
		}
	}
	return tag
}

// The names that a setting can have, in the order of its values. An empty setting has the first value.
var (
	missingNames   = []string{share: "share", skip: "skip", refuse: "refuse"}
	onErrorNames   = []string{sluice.Allow.String(), sluice.Deny.String(), sluice.Local.String()}
	algorithmNames = func() (names []string) {
		for _, a := range sluice.Algorithms() {
			names = append(names, a.String())
		}
		return names
	}()
)

// choice returns the index in names of the value of a field, or 0 if it is left out.
func (c *compiler) choice(field, value string, names []string) int {
	i := slices.Index(names, value)
	if i < 0 && value != "" {
		known := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
		c.fail(field, spelling.Suggest(value, known), "unknown %s %s", field, spelling.Quote(value))
	}
	return max(i, 0)
}

func (c *compiler) ambiguous(value string) ambiguous {
	if value == "" {
		return byKey
	}
	return refuseAmbiguous + ambiguous(c.choice("ambiguous", value, []string{"refuse", "charge"}))
}

var nameSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// checkName complains about a name that cannot be part of a key or a header as it is.
func (c *compiler) checkName(field, what, s string) bool {
	if nameSyntax.MatchString(s) {
		return true
	}
	hint := "use up to 64 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or digit"
	if lower := strings.ToLower(s); lower != s && nameSyntax.MatchString(lower) {
		hint = fmt.Sprintf("write %q", lower)
	}
	c.fail(field, hint, "%s %s is not a name", what, spelling.Quote(s))
	return false
}

const defaultIPv6Prefix = 64

func (c *compiler) ipv6Prefix(bits int) int {
	if bits == 0 {
		return defaultIPv6Prefix
	}
	c.between("ipv6_prefix", int64(bits), 128)
	return bits
}

// between complains about a number that is not from 1 to most.
func (c *compiler) between(field string, n, most int64) {
	if n < 1 || n > most {
		c.fail(field, fmt.Sprintf("use a number from 1 to %d", most), "%s is %d", field, n)
	}
}

func (c *compiler) prefixes(texts []string) (all []netip.Prefix) {
	for i, s := range texts {
		if p, ok := c.network(fmt.Sprintf("trusted_proxies[%d]", i), s); ok {
			all = append(all, p)
		}
	}
	return all
}

func (c *compiler) part(field, text string) *parts.Part {
	p, err := parts.Parse(text)
	if err != nil {
		c.fail(field, "", "%v", err)
		return nil
	}
	p.IgnoreCase = c.anyCase
	return &p
}

func (c *compiler) parts(of string, texts []string, all parts.List) parts.List {
	for i, text := range texts {
		field := fmt.Sprintf("%s[%d]", of, i)
		p := c.part(field, text)
		if p == nil {
			continue
		}
		if all.Contains(p) {
			c.fail(field, "remove one of them", "key has the part %s twice", spelling.Quote(text))
		}
		all = append(all, *p)
	}
	if len(all) > maxKeyParts {
		c.fail(of, "remove parts that distinguish no clients", "key has %d parts, the maximum is %d", len(all), maxKeyParts)
	}
	return all
}

// until reads the end of an override or a subject, in microseconds since the Unix epoch; 0 means no end.
func (c *compiler) until(text string) int64 {
	if text == "" {
		return 0
	}
	t, err := ParseUntil(text)
	if err != nil {
		c.fail("until", untilHint, "until is %s, which is not a time", spelling.Quote(text))
		return 0
	}
	return cmp.Or(t.UnixMicro(), -1)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
