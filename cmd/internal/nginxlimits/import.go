package nginxlimits

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Imported is a policy translated from an nginx configuration.
type Imported struct {
	Document policy.Document
	// Untranslated has the limits and settings that the policy lacks, each with its line and the reason.
	Untranslated []string

	comments [][]string // one list for each rule
	head     []string
}

// Import translates limit_req and limit_conn to a policy. The error has a file and a line.
func Import(files *conf.Files) (*Imported, error) {
	r := &reader{variables: newVariables()}
	if err := r.read(files.Directives); err != nil {
		return nil, err
	}
	im := &Imported{Document: policy.Document{TrustedProxies: r.trusted, Rules: []policy.Rule{}}}
	for _, m := range files.Missing {
		r.note(m.By, "the included file %s does not exist", m.Name)
	}
	if len(r.trusted) > 0 && !r.recursive {
		im.head = append(im.head, "trusted_proxies: in nginx, the last address of X-Forwarded-For is the client's (real_ip_recursive is off). Sluice skips trusted proxies at the end of the field, so clients in these networks could choose their address: list only proxies.")
	}
	r.importRules(im)
	for _, z := range r.zones {
		if !z.used {
			r.note(z.at, "no limit uses the zone %q", z.name)
		}
	}
	if len(im.Document.Rules) > 0 {
		r.passedOn(files.Directives)
	}
	im.Untranslated = r.notes
	if _, err := policy.Compile(im.Document); err != nil {
		return nil, fmt.Errorf("the rules together are not a valid policy: %w", err)
	}
	return im, nil
}

// importRules adds the rules of all groups.
func (r *reader) importRules(im *Imported) {
	names := map[string]bool{}
	groups := r.groups()
	var all []importedRule
	for _, g := range groups {
		rules := r.rules(g, names)
		for i := range rules {
			if len(groups) > 1 && slices.ContainsFunc(groups, func(o *group) bool { return o != g && o.zone == g.zone }) {
				rules[i].notes = append(rules[i].notes, "nginx counts all uses of the zone "+g.zone.name+" together; here each kind of use has a rule of its own, which counts separately")
			}
		}
		all = append(all, rules...)
	}
	im.status(all)
	for _, one := range all {
		im.Document.Rules = append(im.Document.Rules, one.Rule)
		im.Document.Overrides = append(im.Document.Overrides, one.overrides...)
		im.comments = append(im.comments, one.notes)
		if slices.Contains(one.Key, "client_ip") {
			im.Document.IPv6Prefix = 128
		}
	}
}

// tooMany is the default status of a denial.
const tooMany = 429

// status sets the status of denials to nginx's status if it is the same for all rules.
func (im *Imported) status(all []importedRule) {
	if len(all) == 0 {
		return
	}
	same := !slices.ContainsFunc(all, func(o importedRule) bool { return o.status != all[0].status })
	switch {
	case same && all[0].status == tooMany:
	case same && all[0].status != 444:
		im.Document.Answers = map[string]policy.Answer{fmt.Sprint(tooMany): {Status: all[0].status}}
		im.head = append(im.head, fmt.Sprintf("answers: nginx denies with %d. Without these lines, the status is 429, which clients expect from a limit.", all[0].status))
	default:
		for i := range all {
			if all[i].status != tooMany {
				all[i].notes = append(all[i].notes, fmt.Sprintf("nginx denies with %d; here it is 429, the status of all rules", all[i].status))
			}
		}
	}
}

// Text returns the policy as YAML, with comments.
func (im *Imported) Text(sources []string) ([]byte, error) {
	text, err := policyfile.Encode("policy.yaml", im.Document)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	comment(&b, "", "Made by \"sluice import nginx\" from "+strings.Join(sources, ", ")+".")
	comment(&b, "", "A pattern matches more spellings of a path than a location does: with and without a final slash, and /login.json for /login.")
	if im.Document.IPv6Prefix != 0 {
		comment(&b, "", "ipv6_prefix: nginx counts each IPv6 address separately. Without this line, a client with a whole network has one count.")
	}
	for _, line := range im.head {
		comment(&b, "", line)
	}
	if len(im.Untranslated) > 0 {
		b.WriteString("#\n# Not translated:\n")
		for _, note := range im.Untranslated {
			comment(&b, "", "- "+note)
		}
	}
	comments := make([]string, len(im.comments))
	for i, notes := range im.comments {
		var c bytes.Buffer
		for _, note := range notes {
			comment(&c, "  ", note)
		}
		comments[i] = c.String()
	}
	b.WriteString(words.CommentRules(text, comments))
	return b.Bytes(), nil
}

// comment writes a text as one line of a comment.
func comment(b *bytes.Buffer, indent, text string) {
	fmt.Fprintf(b, "%s# %s\n", indent, printable.Line(text))
}
