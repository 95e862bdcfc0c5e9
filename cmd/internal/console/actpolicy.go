package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// shadowWord is the word that an admin types to confirm shadow mode for the whole policy.
const shadowWord = "shadow"

// shadowWords describes what happens to requests beyond a limit.
func shadowWords(w *control.ShadowState) string {
	switch {
	case !w.On:
		return "denied, according to the rules"
	case w.Ends == nil:
		return "not denied"
	}
	return "not denied until " + timeWords(*w.Ends)
}

// lookShadowAll returns the effect of putting the whole policy in shadow mode.
func lookShadowAll(c *call, f url.Values) (*effect, error) {
	now, err := c.s.Control.Shadow(c.caller)
	if err != nil {
		return nil, err
	}
	until := untilOf(f, "1h")
	e := &effect{Back: "/shadow", Title: "Put the whole policy into shadow mode", Verb: "Deny nothing", Danger: true}
	e.Fields = untilFields(f, "1h")
	always := option{policy.ShadowAlways, "until it is undone", until == policy.ShadowAlways}
	e.Fields[0].Options = append(e.Fields[0].Options, always)
	e.Notes = append(e.Notes, c.allWords(telemetry.Deny, "Requests denied in the last hour, which would have been allowed"))
	e.Notes = append(e.Notes, "This includes blocks and overrides. Requests are still counted, and those over a limit are shown as “would be denied”.")
	if end := ends(until); end != "" {
		e.Notes = append(e.Notes, end)
	}
	if now.From == "flag" {
		e.Fields, e.Problem = nil, control.Problemf(http.StatusConflict, "The policy is in shadow mode already: Sluice was started with --shadow.")
		return e, nil
	}
	if !c.policy.Database {
		if ends, err := policy.ParseUntil(until); until != policy.ShadowAlways && (err != nil || !ends.After(time.Now())) {
			e.Problem = control.Problemf(http.StatusUnprocessableEntity, "The end must be a day in the future.")
			return e, nil // no text to paste, because the form may not be valid yet
		}
		e.How = "The policy is a file, which this page cannot change. Add this line at the top of the file on every instance; changes are loaded automatically."
		e.Paste = "shadow: " + until + "\n"
		return e, nil
	}
	e.Notes = append(e.Notes, "Shadow mode is stored in the database: it applies on all instances and survives restarts.")
	e.Fields = append(e.Fields, field{
		Name: "word", Label: "Type the word " + shadowWord, Kind: "text", Value: f.Get("word"), Required: true, Hint: "Nothing is limited any more, including attackers.",
	})
	if word := f.Get("word"); word != "" && word != shadowWord {
		e.Problem = control.Problemf(http.StatusUnprocessableEntity, "The word must be %s. Nothing was changed.", shadowWord)
	}
	return e, e.tryShadow(c, f, now, until, f.Get("word") == shadowWord)
}

// lookEnforceAll returns the effect of ending the shadow mode of the whole policy.
func lookEnforceAll(c *call, f url.Values) (*effect, error) {
	now, err := c.s.Control.Shadow(c.caller)
	if err != nil {
		return nil, err
	}
	e := &effect{Back: "/shadow", Title: "Enforce the policy again", Verb: "Enforce it"}
	switch {
	case !now.On:
		e.Problem = control.Problemf(http.StatusConflict, "The policy is enforced already.")
		return e, nil
	case now.From == "flag":
		e.How = "Sluice was started with --shadow. To enforce the policy, start it without --shadow."
		return e, nil
	case now.From == source.FromFile:
		e.How = "Shadow mode is set in the policy file, which this page cannot change. Remove this from the top of the file; changes are loaded automatically."
		e.Paste = "shadow: " + now.Until + "\n"
		return e, nil
	}
	e.Notes = append(e.Notes, c.allWords(telemetry.WouldDeny, "Requests of the last hour that the policy would have denied"), "Rules with their own shadow: true stay in shadow mode.")
	return e, e.tryShadow(c, f, now, "", true)
}

// tryShadow makes a dry run of the change. If the last parameter is true, it also offers the change itself.
func (e *effect) tryShadow(c *call, f url.Values, now *control.ShadowState, until string, may bool) error {
	etag := cmp.Or(f.Get("etag"), now.ETag)
	e.Hidden = map[string]string{"etag": etag}
	would, err := offer(c, e, func(dry bool) (*control.ShadowChange, error) {
		return c.s.Control.PutShadow(c.Context(), c.caller, control.ShadowRequest{Until: until}, control.Change{Dry: dry, Match: etag})
	}, func(did *control.ShadowChange) undo {
		before := control.ShadowRequest{}
		if now.On && now.From == source.FromDatabase {
			before.Until = now.Until
		}
		return func(c *call) error {
			_, err := c.s.Control.PutShadow(c.Context(), c.caller, before, control.Change{Match: did.After.ETag})
			return err
		}
	})
	if would == nil {
		return err
	}
	if !may {
		e.do = nil
	}
	e.LastHour = lastHourOf(would.LastHour)
	e.Rows = []effectRow{{"Requests beyond a limit", shadowWords(now), shadowWords(&would.After)}}
	switch e.notice = "The policy is enforced again."; {
	case until == "" && would.After.On:
		e.Warnings = append(e.Warnings, "The policy file sets shadow mode, too: the policy stays in shadow mode until that ends or the file is changed.")
		e.notice = fmt.Sprintf("The policy file keeps the whole policy in shadow mode: requests beyond a limit are %s.", shadowWords(&would.After))
	case until != "":
		e.notice = fmt.Sprintf("The whole policy is in shadow mode now: requests beyond a limit are %s.", shadowWords(&would.After))
	}
	return nil
}

// allWords returns a sentence with the number of requests of the last hour that had the outcome o. The parameter
// what is the start of the sentence.
func (c *call) allWords(o telemetry.Outcome, what string) string {
	v := c.view()
	return hourWords(v.All.Recent, o, refusedIn(v, telemetry.Hour, o), what)
}

// hourWords returns the sentence of allWords for the counts of an hour. It adds the number of subjects, unless this
// number is zero.
func hourWords(hour []telemetry.Counts, o telemetry.Outcome, subjects uint64, what string) string {
	n := sumOf(hour)
	if n.Total() == 0 {
		return "No requests in the last hour."
	}
	text := fmt.Sprintf("%s: %s of %s, %s/s", what, number(n[o]), number(n.Total()), rate(float64(n[o])/time.Hour.Seconds()))
	if n[o] > 0 && subjects > 0 {
		text += ", of " + words.Counted(int64(subjects), "subject")
	}
	return text + "."
}

// shadow returns the state of the whole policy's shadow mode, or nil if the policy is not in shadow mode.
func (c *call) shadow() *control.ShadowState {
	s, err := c.s.Control.Shadow(c.caller)
	if err != nil || !s.On {
		return nil
	}
	return s
}
