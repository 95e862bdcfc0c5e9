package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// Policy is a compiled [Document]. It is never changed and may be shared.
type Policy struct {
	trusted     []netip.Prefix
	ipv6Prefix  int
	ignoreCase  bool
	tierFrom    *parts.Part // nil: no part says the tier
	tierSubject *parts.Part // nil: no subjects are looked up
	tier        string      // of all others
	subjects    tierSubjects
	knownTiers  map[string]bool // see TierNames
	rules       []rule
	byName      map[string]int // the index of each rule
	index       index
	overrides   overrides
	reads       map[string]bool // see Reads
	cors        *CrossOrigin
	answers     *OwnAnswers
	listsUnused []string
	warnings    []Problem
	settles     bool     // a rule goes by the outcome
	readsBody   bool     // likewise by the body
	queueless   bool     // none is a queue
	names       []string // see RuleNames
	fingerprint string   // see Fingerprint
	written     Document // without its overrides and subjects: see Changes
	watchOnly   bool     // see Shadowed
	beneath     *Policy  // that it is the shadow of
	shadowEnds  int64    // see shadowEnds of compiler
}

// rule is a rule as the engine needs it.
type rule struct {
	index      int // of Document.Rules
	name       string
	keyStart   string // of all its keys: the name, and "/" if nothing follows
	match      []*pattern.Pattern
	hosts      []string // lower case, "*.example.com" for all below it
	headers    []headerCondition
	attributes []attributeCondition
	key        parts.List
	together   []int // which parts of key are the hash tag
	missing    missing
	strict     bool // refuse what is ambiguous
	readsBody  bool
	folds      bool // a part of its key: see Observation.Sent
	algorithm  sluice.Algorithm
	// calendar says that the rule names no algorithm, so that months have their own.
	calendar bool
	own      resolved
	tiers    map[string]*resolved
	cost     cost
	debt     int64            // units that a key may owe
	most     map[uint64]int64 // units of the largest limit of each fingerprint; nil until all are compiled
	counts   *counting        // nil: all requests
	lock     *sluice.Plan     // of its penalty; nil: none
	onError  sluice.OnError
	// consistency is that of the charges of its limits.
	consistency sluice.Consistency
	byDefault   bool     // is onError
	inFlight    bool     // it counts requests under way
	counters    uint8    // which it has beside its limits: see counting
	sharing     *sharing // nil: its limit is not shared
	shadow      bool
	share       uint16 // of its subjects for which it is enforced, in hundredths of a percent; 0: all
	exempt      bool
	block       bool
	show        showKey
	asks        bool         // for hosts, headers, attributes or clients
	clients     []*clientSet // empty: any
	notClients  []*clientSet
	source      string // see Rule
	file        string // where it is written
	line        int
}

// resolved are limits that hold together, at least one unless an override has something else to
// say, and where they come from: "rule", "tier:pro" or "override".
type resolved struct {
	limits        []limit
	from          string
	source        string // see Rule
	block, exempt bool
}

// headerCondition is a header that a request must have, with a value, or with any if the
// value is empty.
type headerCondition struct{ name, value string }

// missing says what happens to a request that lacks a part of a rule's key.
type missing uint8

const (
	share  missing = iota // it shares a bucket with all who lack it
	skip                  // the rule does not apply
	refuse                // it is refused as malformed
)

// ambiguous says what happens to a request that servers may read in several ways, in what a
// rule goes by: its path, or a part of the key.
type ambiguous uint8

const (
	byKey           ambiguous = iota // refuseAmbiguous for a key of names that are typed, else chargeAmbiguous
	refuseAmbiguous                  // it is refused as malformed
	chargeAmbiguous                  // every reading of the path is charged, and one count is shared by all doubtful keys
)

// cost is what a request takes from a rule: fixed, or from a header if that is set, or what its
// response tells.
type cost struct {
	header string // canonical
	fixed  int64  // the default where there is a header, the estimate where the response tells
	max    int64
	told   string // the canonical header of the response that tells it
	bytes  int64  // or how many of its body are a unit
}

// maxKeyParts keeps keys short enough to be looked up and to be read.
const maxKeyParts = 8

// Compile checks a document and makes a policy of it. The policy keeps the document's rules, overrides and
// subjects, so do not change them afterwards. The error is an [Errors] that lists what is wrong.
func Compile(doc Document) (*Policy, error) { return CompileAt(doc, nil) }

// CompileAt is Compile for a document that comes from a file: where maps the path of a field (see
// [Problem]) to its file and line, and problems and warnings then name them. It may be nil.
func CompileAt(doc Document, where func(path string) (file string, line int)) (*Policy, error) {
	c := newCompiler(where)
	p := c.compile(&doc)
	if len(c.problems) > 0 {
		sortProblems(c.problems)
		return nil, c.problems
	}
	p.warnings = p.suspicions(where)
	return p, nil
}

// Warnings returns what the document may say but probably does not mean.
func (p *Policy) Warnings() []Problem {
	all := slices.Concat(p.warnings, p.overrides.warnings, p.subjects.warnings)
	sortProblems(all)
	return all
}

// TrustedProxies returns the document's trusted_proxies: the peers whose forwarded headers are
// believed. There are none by default.
func (p *Policy) TrustedProxies() []netip.Prefix { return slices.Clone(p.trusted) }

// compiler checks a document, and gathers every problem on the way. Its methods return a
// zero value, or false, for what they have complained about.
type compiler struct {
	where     func(path string) (file string, line int)
	list      string // what item is in: "rules", "overrides" or "subjects"; empty for the document itself
	item      int    // the one of them that is being looked at
	rule      string // its name
	problems  Errors
	texts     map[string]sluice.Limit
	plans     map[sluice.Limit]*sluice.Plan
	kept      map[keptKey]*sluice.Plan
	limitSets map[limitsKey][]limit
	saysSets  map[saysKey]*resolved
	names     map[string]int // the index of each rule
	key       parts.Keys     // of the override that is being read
	now       int64          // in microseconds since the Unix epoch
	endings   int            // see ended
	lists     map[string]*clientSet
	listsUsed map[string]bool
}

func newCompiler(where func(path string) (file string, line int)) *compiler {
	return &compiler{
		where:     where,
		texts:     make(map[string]sluice.Limit),
		limitSets: make(map[limitsKey][]limit),
		saysSets:  make(map[saysKey]*resolved),
		plans:     make(map[sluice.Limit]*sluice.Plan),
		kept:      make(map[keptKey]*sluice.Plan),
		names:     make(map[string]int),
		now:       time.Now().UnixMicro(),
		listsUsed: make(map[string]bool),
	}
}

// fail reports a problem with a field of the rule or override that is being looked at, or
// with all of it if field is empty.
func (c *compiler) fail(field, hint, format string, args ...any) {
	p := Problem{Path: c.path(field), Rule: c.rule, Message: fmt.Sprintf(format, args...), Hint: hint}
	c.problems = append(c.problems, p.at(c.where))
}

func (c *compiler) path(field string) string {
	switch {
	case c.list == "":
		return field
	case field == "":
		return fmt.Sprintf("%s[%d]", c.list, c.item)
	}
	return fmt.Sprintf("%s[%d].%s", c.list, c.item, field)
}

// warn adds a warning about the item that is being looked at.
func (c *compiler) warn(found *[]Problem, hint, format string, args ...any) {
	*found = append(*found, Problem{Path: c.path(""), Rule: c.rule, Message: fmt.Sprintf(format, args...), Hint: hint}.at(c.where))
}

// at returns the problem with the place where it is written.
func (p Problem) at(where func(string) (string, int)) Problem {
	if where != nil {
		p.File, p.Line = where(p.Path)
	}
	return p
}

// first says where the first of two things is that may be there once.
func (c *compiler) first(item int) string {
	path := fmt.Sprintf("%s[%d]", c.list, item)
	if c.where != nil {
		if _, line := c.where(path); line > 0 {
			return fmt.Sprintf("the first in line %d", line)
		}
	}
	return "the first is " + path
}

func (c *compiler) compile(doc *Document) *Policy {
	p := &Policy{
		trusted:    c.prefixes(doc.TrustedProxies),
		ipv6Prefix: c.ipv6Prefix(doc.IPv6Prefix),
		ignoreCase: doc.IgnoreCase,
		shadowEnds: c.shadowEnds(doc.Shadow),
		cors:       c.cors(&doc.CORS),
		answers:    c.answers(doc.Answers),
		rules:      make([]rule, len(doc.Rules)),
		byName:     c.names,
	}
	byDefault := c.ambiguous(doc.Ambiguous)
	c.tierSource(p, &doc.Tiers)
	c.readLists(doc.Lists)
	c.list = "rules"
	for i := range doc.Rules {
		c.item, c.rule = i, ""
		p.rules[i] = c.compileRule(p, &doc.Rules[i], byDefault)
	}
	c.checkAllTold(p)
	c.keep(p)
	p.listsUnused = c.unused()
	p.overrides = c.overrides(p, doc.Overrides)
	if doc.Tiers.Subject == "" || p.tierSubject != nil { // else it has been complained about
		p.subjects = c.tierSubjects(p, doc.Subjects)
	}
	p.queueless = !slices.ContainsFunc(p.rules, func(r rule) bool { return r.algorithm == sluice.LeakyBucket })
	if len(c.problems) == 0 {
		p.index = newIndex(p.rules, p.ignoreCase)
		if p.cors != nil {
			p.cors.typed = newTyped(p.rules, p.ignoreCase)
		}
		p.reads = p.fieldsRead()
		p.identify(*doc)
	}
	return p
}

func (c *compiler) compileRule(p *Policy, r *Rule, byDefault ambiguous) rule {
	c.name(r)
	out := rule{
		index: c.item, name: r.Name, shadow: r.Shadow, exempt: r.Exempt, source: r.Source,
		match: c.patterns(r.Match), hosts: c.hosts(r.Hosts), headers: c.headers(r.Headers),
		attributes: c.attributes(r.Attributes),
	}
	if c.where != nil {
		out.file, out.line = c.where(c.path(""))
	}
	out.clients, out.notClients, out.block = c.clients("clients", r.Clients), c.clients("not_clients", r.NotClients), r.Block
	if r.Exempt || r.Block {
		c.checkUncounted(r)
		return out
	}
	out.key = c.parts("key", r.Key, nil)
	owner := len(out.key)
	out.together = c.together(r, out.key)
	if !r.Share.isZero() {
		out.key = c.parts("share.by", r.Share.By, out.key)
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
	out.strict = cmp.Or(c.ambiguous(r.Ambiguous), byDefault, defaultAmbiguous(out.key)) == refuseAmbiguous
	out.share = c.enforce(r)
	if out.show = showKey(c.choice("show_key", r.ShowKey, showKeyNames)); r.ShowKey == "" {
		out.show = defaultShow(out.key)
	}
	out.cost = c.cost(&r.Cost)
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
	if out.key.Has("route") && len(out.match) == 0 {
		c.fail("key", "name the routes under match, or use host or method", "the part \"route\" needs a rule with match")
	}
	out.counters = out.counting()
	out.folds = out.key.Any((*parts.Part).Folds)
	out.readsBody = out.key.Any((*parts.Part).ReadsBody) || len(r.Tiers)+len(r.Share.Weights) > 0 && p.tierReadsBody()
	p.readsBody = p.readsBody || out.readsBody
	return out
}

// name checks the name of a rule.
func (c *compiler) name(r *Rule) {
	if r.Name == "" {
		c.fail("", "write \"name: …\": keys and answers carry it", "the rule has no name")
		return
	}
	if !c.checkName("name", "name", r.Name) {
		return
	}
	c.rule = r.Name
	if first, twice := c.names[r.Name]; twice {
		c.fail("name", "give it another name", "there are two rules of this name, %s", c.first(first))
		return
	}
	c.names[r.Name] = c.item
}

// limitsOf compiles the limits of a rule: its own, and those of its tiers.
func (c *compiler) limitsOf(p *Policy, r *Rule, out *rule) {
	ofTier := c.limits
	switch {
	case r.InFlight != 0:
		ofTier = c.tierPlaces
		c.inFlight(r, out)
	case r.Limit == "" && len(r.Limits) == 0:
		c.fail("", "write for example \"limit: 100/minute\"", "the rule has no limit")
	default:
		out.own = resolved{limits: c.ownLimits(r.Limit, r.Limits, out), from: "rule", source: r.Source}
	}
	if len(r.Tiers) == 0 {
		return
	}
	if p.tierFrom == nil && p.tierSubject == nil {
		c.fail("tiers", "write for example \"tiers: {from: header:X-Plan}\" at the top of the document", "nothing says where a request's tier is to be found")
	}
	out.tiers = make(map[string]*resolved, len(r.Tiers))
	for _, name := range sortedKeys(r.Tiers) {
		field := fmt.Sprintf("tiers[%q]", name)
		if !c.checkName(field, "tier", name) {
			continue
		}
		tier := p.canonicalTier(name)
		if out.tiers[tier] != nil {
			c.fail(field, "keep one of them", "no request can tell the tier %s from another of the rule", spelling.Quote(name))
		}
		if len(r.Tiers[name]) == 0 {
			c.fail(field, "write for example \"1000/minute\", or a number in a rule with in_flight", "the tier %s has no limit", spelling.Quote(name))
			continue
		}
		out.tiers[tier] = &resolved{limits: ofTier(field, r.Tiers[name], out), from: "tier:" + name, source: r.Source}
	}
}

// defaultAmbiguous is ambiguous where nothing says it. Who counts by what is in a body mostly
// guards accounts, and honest clients send that in one plain way.
func defaultAmbiguous(key parts.List) ambiguous {
	if key.Any((*parts.Part).ReadsBody) {
		return refuseAmbiguous
	}
	return chargeAmbiguous
}

// checkUncounted complains about what has no meaning in a rule that exempts or blocks.
func (c *compiler) checkUncounted(r *Rule) {
	field, kind := "exempt", "an exempt"
	if r.Block {
		field, kind = "block", "a blocking"
	}
	if r.Exempt && r.Block {
		c.fail("block", "remove one of them", "a rule either exempts or blocks")
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"limit", r.Limit != ""}, {"limits", len(r.Limits) > 0}, {"in_flight", r.InFlight != 0}, {"key", len(r.Key) > 0}, {"together", len(r.Together) > 0}, {"missing", r.Missing != ""},
		{"ambiguous", r.Ambiguous != ""}, {"algorithm", r.Algorithm != ""}, {"tiers", len(r.Tiers) > 0}, {"share", !r.Share.isZero()}, {"cost", r.Cost != Cost{}},
		{"count", !r.Count.isZero()}, {"penalty", r.Penalty != Penalty{}},
		{"on_error", r.OnError != ""}, {"consistency", r.Consistency != ""}, {"shadow", r.Shadow && !r.Block}, {"show_key", r.ShowKey != ""}, {"enforce", r.Enforce != ""},
	} {
		if f.set {
			c.fail(f.name, fmt.Sprintf("remove %q, if it is to count", field), "%s rule counts nothing and has no %s", kind, f.name)
		}
	}
}

// together returns which parts of the key are the hash tag.
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
			c.fail(field, "remove it: all of the rule's requests share one key", "together needs a key")
		case !slices.Contains(r.Key, name): // else the key has been complained about
			c.fail(field, spelling.Suggest(name, key.Names()), "%s in together is not a part of the key", spelling.Quote(name))
		}
	}
	return tag
}

// plan compiles a limit of rule r. It returns nil for one that is not worth it.
func (c *compiler) plan(field string, l sluice.Limit, r *rule) *sluice.Plan {
	if l.Count == 0 {
		return nil // this has been reported
	}
	if l.MonthDay == 0 || !r.calendar {
		l.Algorithm = r.algorithm
	}
	plan, known := c.plans[l]
	if !known {
		var err error
		if plan, err = sluice.NewPlan(l); err != nil {
			c.fail(field, "", "%v", err)
			return nil
		}
		c.plans[l] = plan
	}
	c.checkLeasable(field, plan, r)
	if r.cost.fixed > plan.Capacity {
		c.fail(field, "lower the cost or raise the limit or its burst", "a request costs %d, and the limit %v never lets more than %d pass at once", r.cost.fixed, l, plan.Capacity)
	}
	return plan
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
