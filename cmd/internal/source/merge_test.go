package source_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

func beneath() policy.Document {
	return policy.Document{
		TrustedProxies: []string{"10.0.0.0/8"},
		Lists:          map[string]policy.List{"us": {Networks: []string{"192.0.2.0/24"}}, "them": {Networks: []string{"198.51.100.0/24"}}},
		Tiers:          policy.Tiers{From: "header:X-Plan", Subject: "header:X-User", Default: "free"},
		Rules: []policy.Rule{
			{Name: "first", Key: []string{"api_key"}, Limit: "1/minute", Tiers: map[string]policy.Limits{"pro": {"11/minute"}, "free": {"12/minute"}}},
			{Name: "second", Key: []string{"api_key", "route"}, Match: []string{"/x"}, Limit: "2/minute"},
			{Name: "third", Limit: "3/minute"},
		},
		Overrides: []policy.Override{
			{Rule: "first", Key: abc, Limit: "4/minute"},
			{Rule: "second", Key: map[string]string{"api_key": "abc", "route": "*"}, Limit: "5/minute"},
		},
		Subjects: []policy.TierSubject{{Subject: "s", Tier: "pro"}, {Subject: "t", Tier: "pro"}},
	}
}

func onTop() *source.Contents {
	c := &source.Contents{
		Version: 9,
		Rules: []source.RuleRow{
			{Rule: policy.Rule{Name: "new", Limit: "7/minute"}},
			{Rule: policy.Rule{Name: "second", Key: []string{"api_key"}, Limit: "8/minute"}},
			{Rule: policy.Rule{Name: "third", Limit: "9/minute"}, Disabled: true},
		},
		Tiers: []source.TierRow{{Name: "pro", Limits: map[string]policy.Limits{"first": {"13/minute"}, "new": {"14/minute"}}}},
		Overrides: []source.OverrideRow{
			{ID: 1, Override: policy.Override{Rule: "second", Key: abc, Block: true}},
			{ID: 2, Override: policy.Override{Rule: "first", Key: map[string]string{"api_key": "x"}, Exempt: true}},
		},
		Subjects: []source.SubjectRow{{TierSubject: policy.TierSubject{Subject: "s", Tier: "free"}}, {TierSubject: policy.TierSubject{Subject: "u", Tier: "free"}}},
	}
	c.Settings.Document = policy.Document{
		Tiers: policy.Tiers{Default: "pro", Subject: "api_key"}, IPv6Prefix: 56,
		Lists: map[string]policy.List{"us": {Networks: []string{"203.0.113.0/24"}}},
	}
	return c
}

func TestMerge(t *testing.T) {
	file, unchanged := beneath(), beneath()
	doc := source.Merge(&file, onTop())
	if !reflect.DeepEqual(file, unchanged) {
		t.Error("the file's document was changed")
	}
	var rules, overrides, subjects []string
	for _, r := range doc.Rules {
		rules = append(rules, r.Name+" "+r.Limit+" "+r.Source)
	}
	for _, o := range doc.Overrides {
		says := o.Limit
		switch {
		case o.Block:
			says = "block"
		case o.Exempt:
			says = "exempt"
		}
		overrides = append(overrides, o.Rule+" "+o.Key["api_key"]+" "+says+" "+o.Source)
	}
	for _, s := range doc.Subjects {
		subjects = append(subjects, s.Subject+" "+s.Tier+" "+s.Source)
	}
	for _, test := range []struct{ got, want []string }{
		{rules, []string{"first 1/minute file", "second 8/minute database", "third 3/minute file", "new 7/minute database"}},
		{overrides, []string{"first abc 4/minute file", "second abc block database", "first x exempt database"}},
		{subjects, []string{"s free database", "t pro file", "u free database"}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
	if want := map[string]policy.Limits{"pro": {"13/minute"}, "free": {"12/minute"}}; !reflect.DeepEqual(doc.Rules[0].Tiers, want) {
		t.Errorf("tiers of the first rule: %v, want %v", doc.Rules[0].Tiers, want)
	}
	if doc.Rules[3].Tiers["pro"][0] != "14/minute" {
		t.Errorf("tiers of the new rule: %v", doc.Rules[3].Tiers)
	}
	if want := (policy.Tiers{From: "header:X-Plan", Subject: "api_key", Default: "pro"}); doc.Tiers != want {
		t.Errorf("tiers: %+v, want %+v", doc.Tiers, want)
	}
	if doc.IPv6Prefix != 56 || doc.TrustedProxies[0] != "10.0.0.0/8" || doc.Lists["us"].Networks[0] != "203.0.113.0/24" || doc.Lists["them"].Networks == nil {
		t.Errorf("settings: %+v", doc)
	}
	if alone := source.Merge(nil, nil); len(alone.Rules) != 0 {
		t.Errorf("the merge of nothing has rules: %+v", alone)
	}
}

// Every field of a document's settings is merged, including fields that are added later.
func TestMergeSettings(t *testing.T) {
	full := policy.Document{
		TrustedProxies: []string{"10.0.0.0/8"}, IPv6Prefix: 56, IgnoreCase: true, Shadow: "always", Ambiguous: "refuse", BodyLimit: "1MiB", Fields: "ietf",
		CORS:  policy.CORS{Origins: []string{"*"}},
		Lists: map[string]policy.List{"us": {Networks: []string{"192.0.2.0/24"}}},
		Tiers: policy.Tiers{From: "header:X-Plan", Subject: "api_key", Default: "free"},

		Answers: map[string]policy.Answer{"429": {Status: 503}},
		Prices:  policy.Prices{Models: map[string]policy.Price{"*": {Input: "15", Output: "75"}}},
	}
	c := &source.Contents{}
	c.Settings.Document = full
	got := reflect.ValueOf(*source.Merge(nil, c))
	for i := range got.NumField() {
		switch name := got.Type().Field(i).Name; name {
		case "Rules", "Overrides", "Subjects":
		default:
			if want := reflect.ValueOf(full).Field(i); want.IsZero() || !reflect.DeepEqual(got.Field(i).Interface(), want.Interface()) {
				t.Errorf("%s is %v, want %v", name, got.Field(i), want)
			}
		}
	}
}

// Problems contain their position: the line of the file or the row of the database.
func TestStackProblems(t *testing.T) {
	where := func(path string) (string, int) { return "api.yaml", 100 + len(path) }
	for path, spoil := range map[string]func(*policy.Document, *source.Contents){
		`api.yaml:114: rule "first": `:                 func(d *policy.Document, _ *source.Contents) { d.Rules[0].Limit = "x" },
		`api.yaml:118: rule "first": `:                 func(d *policy.Document, _ *source.Contents) { d.Overrides[0].Limit = "x" },
		`db: rules["second"].limit: rule "second": `:   func(_ *policy.Document, c *source.Contents) { c.Rules[1].Limit = "x" },
		`db: overrides[2]: `:                           func(_ *policy.Document, c *source.Contents) { c.Overrides[1].Limit = "5/minute" },
		`db: subjects["u"].until: `:                    func(_ *policy.Document, c *source.Contents) { c.Subjects[1].Until = "x" },
		`db: tiers["pro"].limits["new"]: rule "new": `: func(_ *policy.Document, c *source.Contents) { c.Tiers[0].Limits["new"] = policy.Limits{"x"} },
		`db: tiers["pro"].limits["nil"]: `:             func(_ *policy.Document, c *source.Contents) { c.Tiers[0].Limits["nil"] = policy.Limits{"1/minute"} },
	} {
		doc, contents := beneath(), onTop()
		spoil(&doc, contents)
		swaps := 0
		s := &source.Stack{Name: "db", Swap: func(*policy.Policy) { swaps++ }}
		_, err := s.File(doc, where)
		if err == nil {
			if err := s.UseFile(); err != nil {
				t.Fatal(err)
			}
			err = s.Contents(contents)
		}
		problems, _ := errors.AsType[policy.Errors](err)
		if len(problems) == 0 || !strings.HasPrefix(problems[0].String(), path) {
			t.Errorf("%v, want %s…", err, path)
		}
	}
}

// If the file or the database is invalid with the other, it is tried again when the other changes.
func TestStackTriesAgain(t *testing.T) {
	rule := func(name string) policy.Rule {
		return policy.Rule{Name: name, Key: []string{"api_key"}, Limit: "1/minute"}
	}
	file := func(name string) policy.Document {
		return policy.Document{Rules: []policy.Rule{rule(name)}}
	}
	overriding := func(name string) *source.Contents {
		return &source.Contents{Version: 1, Overrides: []source.OverrideRow{{ID: 1, Override: policy.Override{Rule: name, Key: abc, Limit: "2/minute"}}}}
	}
	for name, test := range map[string]struct {
		then  func(*source.Stack) []error // steps after both have the rule "a"; returns their errors
		fails []bool
		want  string // the rule of the file that is in force
		taken int
	}{
		"the database follows": {func(s *source.Stack) []error {
			_, err := s.File(file("b"), nil)
			return []error{err, s.Contents(&source.Contents{Version: 2})}
		}, []bool{true, false}, "b", 1},
		"the database follows with more": {func(s *source.Stack) []error {
			_, err := s.File(file("b"), nil)
			return []error{err, s.Contents(overriding("b"))}
		}, []bool{true, false}, "b", 1},
		"the file follows": {func(s *source.Stack) []error {
			err := s.Contents(overriding("b"))
			_, err2 := s.File(file("b"), nil)
			return []error{err, err2, s.UseFile()}
		}, []bool{true, false, false}, "b", 0},
		"the file is never one": {func(s *source.Stack) []error {
			_, err := s.File(policy.Document{Rules: []policy.Rule{{Name: "b", Limit: "much"}}}, nil)
			return []error{err, s.Contents(&source.Contents{Version: 2})}
		}, []bool{true, false}, "a", 0},
		"the file goes back": {func(s *source.Stack) []error {
			_, err := s.File(file("b"), nil)
			_, err2 := s.File(file("a"), nil)
			return []error{err, err2, s.UseFile(), s.Contents(&source.Contents{Version: 2})}
		}, []bool{true, false, false, false}, "a", 0},
		"a database that is wrong is only looked at": {func(s *source.Stack) []error {
			return []error{s.Check(&source.Contents{Version: 2, Rules: []source.RuleRow{{Rule: policy.Rule{Name: "c", Limit: "much"}}}})}
		}, []bool{true}, "a", 0},
	} {
		taken := 0
		var inForce *policy.Policy
		s := &source.Stack{Name: "db", Swap: func(p *policy.Policy) { inForce = p }, FileTaken: func() { taken++ }}
		if _, err := s.File(file("a"), nil); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.UseFile(), s.Contents(overriding("a"))); err != nil {
			t.Fatal(err)
		}
		for i, err := range test.then(s) {
			if (err != nil) != test.fails[i] {
				t.Errorf("%s: step %d: %v", name, i, err)
			}
		}
		doc, _ := s.Document()
		if len(doc.Rules) != 1 || doc.Rules[0].Name != test.want || s.Policy() != inForce || taken != test.taken {
			t.Errorf("%s: the rules in force are %+v, and FileTaken was called %d times", name, doc.Rules, taken)
		}
	}
}
