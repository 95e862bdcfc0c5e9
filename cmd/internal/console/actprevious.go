package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// previousPolicy is the policy before the present one, as far as it differs.
type previousPolicy struct {
	Source   string           `json:"source"`
	Entry    int64            `json:"entry"`
	At       time.Time        `json:"at"`
	Actor    string           `json:"actor"`
	Changes  []previousChange `json:"changes"`
	More     int              `json:"more"`
	Document json.RawMessage  `json:"document"`
	Now      json.RawMessage  `json:"now"`
}

type previousChange struct {
	Kind, Target string
	Now, Then    json.RawMessage
}

// maxPreviousShown is of how many rules the difference is shown.
const maxPreviousShown = 50

// lookPrevious puts the policy before the present one into force again.
func lookPrevious(c *call, f url.Values) (*effect, error) {
	e := &effect{Back: "/policy", Title: "Go back to the policy before this one", Verb: "Put it into force"}
	var p previousPolicy
	if err := c.do("GET", "/v1/policy/previous", nil, &p); err != nil {
		var refused *problem
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			e.Problem = problemf(http.StatusNotFound, "There is none: %s.", refused.Text)
			return e, nil
		}
		return nil, err
	}
	if p.Source == "file" {
		return e, e.previousFile(&p)
	}
	entry := p.Entry
	if asked, err := strconv.ParseInt(f.Get("entry"), 10, 64); err == nil {
		entry = asked // which was shown
	}
	e.Hidden = map[string]string{"entry": strconv.FormatInt(entry, 10)}
	e.Notes = append(e.Notes,
		fmt.Sprintf("It takes back what %s changed at %s, as a whole.", printable(p.Actor), timeWords(p.At)),
		"Overrides, who is in which tier, and what the policy file says stay as they are.")
	was, is := "", ""
	for i, change := range p.Changes {
		if i == maxPreviousShown {
			e.Warnings = append(e.Warnings, fmt.Sprintf("%s more change, too, and are not shown.", several(int64(len(p.Changes)-i+p.More), "part")))
			break
		}
		w, err := change.text(change.Now)
		if err != nil {
			return nil, err
		}
		t, err := change.text(change.Then)
		if err != nil {
			return nil, err
		}
		was, is = was+w, is+t
	}
	e.Diff = diffLines(was, is)
	e.operation = restoreOperation(entry)
	var would difference
	if foreseen, err := e.foresee(c, e.operation, &would); !foreseen {
		return e, err
	}
	for _, a := range would.BeginsAnew {
		e.Notes = append(e.Notes, fmt.Sprintf("What was counted for %s begins anew: %s becomes %s.", a.Rule, a.Was, a.Is))
	}
	e.said = fmt.Sprintf("The policy is as it was before %s.", timeWords(p.At))
	e.undo = func() ([]operation, error) {
		var now previousPolicy
		if err := c.do("GET", "/v1/policy/previous", nil, &now); err != nil {
			return nil, err
		}
		if now.Actor != c.caller.Name { // who was quicker
			return nil, nil
		}
		return []operation{restoreOperation(now.Entry)}, nil
	}
	return e, nil
}

// restoreOperation takes back the last change, which has that entry in the audit log.
func restoreOperation(entry int64) operation {
	return operation{method: "POST", path: "/v1/policy/previous", body: map[string]int64{"entry": entry}}
}

// previousFile shows what the file said before.
func (e *effect) previousFile(p *previousPolicy) error {
	was, err := policyText(p.Now)
	if err != nil {
		return err
	}
	if e.Paste, err = policyText(p.Document); err != nil {
		return err
	}
	if was == e.Paste {
		e.Paste, e.Problem = "", problemf(http.StatusConflict, "The policy file says the same as before. What has changed is a file that it names, of a list or an answer, and what that had is not kept here.")
		return nil
	}
	e.How = "The policy is that of a file, which this page does not write. Put this into it, on all instances that have one of their own; the file is read again when it changes. Comments are not kept here."
	e.Diff = diffLines(was, e.Paste)
	return nil
}

// policyText is a document as people write it.
func policyText(document json.RawMessage) (string, error) {
	doc, err := policyfile.Decode("policy.json", document)
	if err != nil {
		return "", err
	}
	text, err := policyfile.Encode("policy.yaml", doc)
	return string(text), err
}

// text is what a change is about, as people write it; nothing if it is not there.
func (p *previousChange) text(row json.RawMessage) (string, error) {
	if len(row) == 0 || string(row) == "null" {
		return "", nil
	}
	switch p.Kind {
	case "rule":
		var rule struct {
			policy.Rule
			Disabled bool `json:"disabled"`
		}
		if err := json.Unmarshal(row, &rule); err != nil {
			return "", err
		}
		data, err := json.Marshal(rule.Rule)
		if err != nil {
			return "", err
		}
		text, err := yamlOf("rules", data)
		if rule.Disabled {
			text += "    # disabled\n"
		}
		return strings.TrimPrefix(text, "rules:\n"), err
	case "settings":
		var settings struct{ Document map[string]json.RawMessage }
		if err := json.Unmarshal(row, &settings); err != nil || settings.Document == nil {
			return "", err
		}
		settings.Document["version"] = json.RawMessage("1")
		delete(settings.Document, "shadow") // which stays as it is
		document, err := json.Marshal(settings.Document)
		if err != nil {
			return "", err
		}
		return settingsText(document)
	}
	var tier struct {
		Limits map[string]policy.Limits `json:"limits"`
	}
	if err := json.Unmarshal(row, &tier); err != nil {
		return "", err
	}
	data, err := json.Marshal(tier.Limits)
	return fmt.Sprintf("tier %s: %s\n", p.Target, data), err
}
