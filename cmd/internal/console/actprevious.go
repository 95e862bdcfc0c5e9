package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policyfile"
)

// maxPreviousShown is the maximum number of changed rules, tiers and settings on the page.
const maxPreviousShown = 50

// lookPrevious returns the effect of going back to the previous policy.
func lookPrevious(c *call, f url.Values) (*effect, error) {
	e := &effect{Back: "/policy", Title: "Go back to the policy before this one", Verb: "Put it into force"}
	p, err := c.s.Control.Previous(c.Context(), c.caller)
	if err != nil {
		if none := control.AsProblem(err); none != nil && none.Status == http.StatusNotFound {
			e.Problem = control.Problemf(http.StatusNotFound, "There is no previous policy: %s.", none.Detail)
			return e, nil
		}
		return nil, err
	}
	if p.Source == source.FromFile {
		return e, e.previousFile(p)
	}
	entry := p.Entry
	if asked, err := strconv.ParseInt(f.Get("entry"), 10, 64); err == nil {
		entry = asked // the change that the caller saw on the page
	}
	e.Hidden = map[string]string{"entry": strconv.FormatInt(entry, 10)}
	e.Notes = append(e.Notes,
		fmt.Sprintf("This undoes the whole change that %s made at %s.", printable(p.Actor), timeWords(*p.At)),
		"Overrides, tiers of subjects and the policy file do not change.")
	if err := e.previousParts(p); err != nil {
		return nil, err
	}
	would, err := offer(c, e, func(dry bool) (*control.Restored, error) {
		return c.s.Control.Restore(c.Context(), c.caller, entry, dry)
	}, func(*control.Restored) undo {
		now, err := c.s.Control.Previous(c.Context(), c.caller)
		if err != nil || now.Actor != c.caller.Name { // another caller has changed the policy in the meantime
			return nil
		}
		return restoreBefore(now.Entry)
	})
	if would == nil {
		return e, err
	}
	e.Notes = append(e.Notes, restartWords(would.BeginsAnew)...)
	e.LastHour = lastHourOf(would.LastHour)
	e.notice = fmt.Sprintf("The policy is as it was before %s.", timeWords(*p.At))
	return e, nil
}

// restartWords returns a sentence for each limit that starts to count from zero.
func restartWords(all []control.Restart) (notes []string) {
	for _, r := range all {
		notes = append(notes, fmt.Sprintf("Counts for %s start at zero: %s becomes %s.", r.Rule, r.Was, r.Is))
	}
	return notes
}

// previousParts adds the differences of rules, tiers and settings to the effect.
func (e *effect) previousParts(p *control.Previous) error {
	was, is := "", ""
	for i, change := range p.Changes {
		if i == maxPreviousShown {
			e.Warnings = append(e.Warnings, fmt.Sprintf("%s not shown.", plural(len(p.Changes)-i+p.More, "more change is", "more changes are")))
			break
		}
		now, err := partText(change.Kind, change.Target, change.Now)
		if err != nil {
			return err
		}
		then, err := partText(change.Kind, change.Target, change.Then)
		if err != nil {
			return err
		}
		was, is = was+now, is+then
	}
	e.Diff = diffLines(was, is)
	return nil
}

// previousFile adds the previous contents of the policy file to the effect.
func (e *effect) previousFile(p *control.Previous) error {
	was, err := policyfile.Encode(editedName, p.Now.Document)
	if err != nil {
		return err
	}
	is, err := policyfile.Encode(editedName, p.Document.Document)
	if err != nil {
		return err
	}
	if string(was) == string(is) {
		e.Problem = control.Problemf(http.StatusConflict, "The policy file is unchanged. Another file that it names has changed, such as a list of networks. Sluice does not store the previous contents of such files.")
		return nil
	}
	e.How = "The policy is a file, which this page cannot change. Copy this into the file on every instance; changes are loaded automatically. Comments are not included."
	e.Paste = string(is)
	e.Diff = diffLines(string(was), e.Paste)
	return nil
}

// partText returns a row of the database as YAML, or "" if the row is empty.
func partText(kind, target string, row source.Row) (string, error) {
	if row == "" || row == "null" {
		return "", nil
	}
	switch kind {
	case "rule":
		var rule source.RuleRow
		if err := row.Decode(&rule); err != nil {
			return "", err
		}
		text, err := rulesYAML(rule.Rule)
		if rule.Disabled {
			text += "    # disabled\n"
		}
		return strings.TrimPrefix(text, "rules:\n"), err
	case "settings":
		var settings source.SettingsRow
		if err := row.Decode(&settings); err != nil {
			return "", err
		}
		settings.Document.Shadow = "" // the shadow mode of the whole policy stays as it is
		return settingsYAML(settings.Document)
	}
	var tier control.Tier
	if err := row.Decode(&tier); err != nil {
		return "", err
	}
	return fmt.Sprintf("tier %s: %s", target, control.JSON(tier.Limits)), nil
}
