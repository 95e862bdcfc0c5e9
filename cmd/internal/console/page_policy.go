package console

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// policyShown is the data of the page "Policy".
type policyShown struct {
	*control.InForce
	Text, Base   string
	Plan         *policyPlan // nil: no text was sent
	File, Stored int         // the numbers of rules of the file and of the database
}

func policyShownOf(p *control.InForce, text, base string) *policyShown {
	d := &policyShown{InForce: p, Text: text, Base: base}
	for _, r := range p.Document.Rules {
		d.Stored += btoi(r.Source == source.FromDatabase)
	}
	d.File = len(p.Document.Rules) - d.Stored
	return d
}

func (s *server) policyPage(c *call) error {
	text, err := c.policyText()
	if err != nil {
		return err
	}
	return s.showPolicy(c, http.StatusOK, policyShownOf(c.policy, text, text))
}

func (s *server) showPolicy(c *call, status int, d *policyShown) error {
	return s.show(c, status, "policy", page{Title: "Policy", Section: "policy", Script: "editor.js", Data: d})
}

// policyEdited reads the form of the editor, and plans the changes.
func (c *call) policyEdited() (d *policyShown, err error) {
	d = policyShownOf(c.policy, unixLines(c.PostForm.Get("text")), unixLines(c.PostForm.Get("base")))
	d.Plan, err = c.planPolicy(d.Base, d.Text)
	return d, err
}

// unixLines replaces "\r\n", which browsers send at the end of each line, by "\n".
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// policyCheck shows the effect of an edited policy.
func (s *server) policyCheck(c *call) error {
	d, err := c.policyEdited()
	if err != nil {
		return err
	}
	return s.showPolicy(c, http.StatusOK, d)
}

// policyApply tries the changes with a dry run, and then makes them in one transaction.
func (s *server) policyApply(c *call) error {
	d, err := c.policyEdited()
	if err != nil {
		return err
	}
	if !d.Database || !d.Plan.Applies() {
		return s.showPolicy(c, d.Plan.status(), d)
	}
	entry, err := d.Plan.send(c, false)
	if err != nil {
		return err
	}
	if !d.Plan.Good() { // another change came first
		return s.showPolicy(c, d.Plan.status(), d)
	}
	var changes []string
	for _, r := range d.Plan.Changes {
		changes = append(changes, r.Name+" "+r.What)
	}
	var back undo
	if entry > 0 {
		back = restoreBefore(entry)
	}
	return c.done("/policy", fmt.Sprintf("Applied: %s.", listWords(changes)), back)
}

// status returns the status code of the page that shows a plan with problems.
func (p *policyPlan) status() int {
	status := http.StatusUnprocessableEntity
	if p.Problem != nil {
		status = p.Problem.Status
	}
	for _, r := range p.Changes {
		if r.Problem != nil {
			status = r.Problem.Status
		}
	}
	return status
}

// maxListed is the maximum number of items that a sentence lists.
const maxListed = 10

// listWords returns a list for use in a sentence.
func listWords(all []string) string {
	text := strings.Join(all[:min(len(all), maxListed)], ", ")
	if more := len(all) - maxListed; more > 0 {
		text += " and " + number(more) + " more"
	}
	return text
}

// policyDownload returns the text of the editor as a file.
func (s *server) policyDownload(c *call) error {
	h := c.w.Header()
	h.Set("Content-Type", "application/yaml; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="policy.yaml"`)
	_, _ = io.WriteString(c.w, unixLines(c.PostForm.Get("text"))) // the only error is that the browser has left
	return nil
}
