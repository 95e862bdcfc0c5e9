package console

import "net/http"

// keyPage shows the whole key of a subject, which other pages shorten. The log records the caller.
func (s *server) keyPage(c *call) error {
	ref, err := c.subjectOf(c.URL.Query())
	if err != nil {
		return err
	}
	s.Logger.Info("console: the whole key of a subject was shown", "actor", c.caller.Name, "rule", ref.Rule.Name, "subject", ref.Shown)
	return s.show(c, http.StatusOK, "key", page{Title: "The key of a subject of " + ref.Rule.Name, Section: "subjects", Data: ref})
}
