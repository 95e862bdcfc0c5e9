package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

// alerts has the present alerts and the silences.
type alerts struct{ control.AlertList }

// alerts returns the present alerts and the silences. Without telemetry, it returns no alerts.
func (c *call) alerts() (a alerts, err error) {
	list, err := c.s.Control.Alerts(c.caller)
	if err != nil {
		_, err = c.refusal(err)
		return a, err
	}
	a.AlertList = *list
	for i := range a.Alerts {
		a.Alerts[i].Text = printableTo(a.Alerts[i].Text, 400)
	}
	return a, nil
}

// silence returns the silence of an alert, or nil.
func (a *alerts) silence(name string) *control.Silence {
	if i := slices.IndexFunc(a.Silences, func(s control.Silence) bool { return s.Alert == name }); i >= 0 {
		return &a.Silences[i]
	}
	return nil
}

// silenced reports whether an alert is silenced.
func (a *alerts) silenced(name string) bool { return a.silence(name) != nil }

// text returns the text of an alert, or "" for an unknown name.
func (a *alerts) text(name string) string {
	if i := slices.IndexFunc(a.Alerts, func(one control.Alert) bool { return one.Alert == name }); i >= 0 {
		return a.Alerts[i].Text
	}
	return ""
}

// maxMoreAlerts is the maximum number of alerts that are listed after the first one.
const maxMoreAlerts = 5

// others returns the alerts that are not silenced, except the one with the name first.
func (a *alerts) others(first string) (all []control.Alert) {
	for _, one := range a.Alerts {
		if one.Alert != first && one.Silenced == nil && len(all) < maxMoreAlerts {
			all = append(all, one)
		}
	}
	return all
}

// quiet returns the silenced alerts, including those that have ended.
func (a *alerts) quiet() (all []control.Alert) {
	for i := range a.Silences {
		name := a.Silences[i].Alert
		text := cmp.Or(a.text(name), "The alert has ended: "+name+".")
		all = append(all, control.Alert{Alert: name, Text: text, Silenced: &a.Silences[i]})
	}
	return all
}

func lookSilence(c *call, f url.Values) (*effect, error) {
	a, err := c.alerts()
	if err != nil {
		return nil, err
	}
	name := f.Get("alert")
	e := &effect{Back: "/", Title: "Silence an alert", Verb: "Silence it", Hidden: map[string]string{"alert": name}, Whom: a.text(name)}
	was := a.silence(name)
	if e.Whom == "" && was == nil {
		return nil, control.Problemf(http.StatusNotFound, "The alert has ended.")
	}
	until := untilOf(f, "1h")
	e.Fields = append(untilFields(f, "1h"), reasonField(f, false))
	e.Notes = append(e.Notes, "The alert moves from the headline of the first page to the list of silenced alerts. Decisions do not change.")
	if end := ends(until); end != "" {
		e.Notes = append(e.Notes, end)
	}
	e.Notes = append(e.Notes, "The silence applies to this instance until a restart. To silence alerts of Prometheus, use Alertmanager.")
	e.notice = fmt.Sprintf("Silenced %s.", untilWords(until))
	r := control.SilenceRequest{Alert: name, Until: until, Reason: f.Get("reason")}
	would, err := offer(c, e, func(dry bool) (*control.SilenceChange, error) {
		return c.s.Control.Silence(c.Context(), c.caller, r, dry)
	}, func(did *control.SilenceChange) undo { return unsilenceMade(did.After, was) })
	if would != nil {
		e.Rows = []effectRow{{"The alert", silenceWords(was), silenceWords(would.After)}}
	}
	return e, err
}

func lookUnsilence(c *call, f url.Values) (*effect, error) {
	a, err := c.alerts()
	if err != nil {
		return nil, err
	}
	name := f.Get("alert")
	was := a.silence(name)
	if was == nil {
		return nil, control.Problemf(http.StatusNotFound, "The alert is not silenced: its silence has ended.")
	}
	e := &effect{
		Back: "/", Title: "End a silence", Verb: "End it", Hidden: map[string]string{"alert": name}, Whom: a.text(name),
		notice: "The alert is not silenced any more.",
	}
	would, err := offer(c, e, func(dry bool) (*control.SilenceChange, error) {
		return c.s.Control.Unsilence(c.Context(), c.caller, control.UnsilenceRequest{Alert: name}, dry)
	}, func(*control.SilenceChange) undo { return silenceAgain(was) })
	if would != nil {
		e.Rows = []effectRow{{"The alert", silenceWords(was), silenceWords(nil)}}
	}
	return e, err
}

// silenceAgain returns an undo that restores a silence.
func silenceAgain(was *control.Silence) undo {
	return func(c *call) error {
		_, err := c.s.Control.Silence(c.Context(), c.caller, control.SilenceRequest{Alert: was.Alert, Until: was.Until.Format(time.RFC3339Nano), Reason: was.Reason}, false)
		return err
	}
}

// unsilenceMade returns the undo of a silence. The first parameter is the new silence. The undo ends it, unless a
// later one has replaced it. Then it restores the previous silence, which is the second parameter, or nil if the
// alert was not silenced before.
func unsilenceMade(is, was *control.Silence) undo {
	return func(c *call) error {
		_, err := c.s.Control.Unsilence(c.Context(), c.caller, control.UnsilenceRequest{Alert: is.Alert, Until: is.Until}, false)
		if err != nil || was == nil {
			return err
		}
		return silenceAgain(was)(c)
	}
}

func silenceWords(s *control.Silence) string {
	if s == nil {
		return "shown first"
	}
	return "silenced " + untilWords(s.Until.Format(time.RFC3339)) + ", by " + printable(s.By)
}
