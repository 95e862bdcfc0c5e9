package console

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// alerts are what is wrong, and what is silenced.
type alerts struct {
	Alerts   []alertShown `json:"alerts"`
	Silences []silencing  `json:"silences"`
}

// alertShown is something that is wrong.
type alertShown struct {
	Alert    string     `json:"alert"`
	Level    string     `json:"level"`
	Text     string     `json:"text"`
	Rule     string     `json:"rule"`
	Silenced *silencing `json:"silenced"`
}

// silencing keeps an alert from the first line until a time.
type silencing struct {
	Alert  string    `json:"alert"`
	Until  time.Time `json:"until"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// alerts returns what is wrong. Without anybody who counts, nothing is known to be.
func (c *call) alerts() (a alerts, err error) {
	err = c.do("GET", "/v1/alerts", nil, &a)
	if _, err := asProblem(err); err != nil {
		return a, err
	}
	for i := range a.Alerts {
		a.Alerts[i].Text = printableTo(a.Alerts[i].Text, 400)
	}
	return a, nil
}

// silenced reports whether an alert is.
func (a *alerts) silenced(name string) bool { return a.of(name) != nil }

func (a *alerts) of(name string) *silencing {
	for i := range a.Silences {
		if a.Silences[i].Alert == name {
			return &a.Silences[i]
		}
	}
	return nil
}

// maxMoreAlerts is how many are listed beside the first.
const maxMoreAlerts = 5

// others returns what is wrong beside what is said first, and is not silenced.
func (a *alerts) others(first string) (all []alertShown) {
	for _, one := range a.Alerts {
		if one.Alert != first && one.Silenced == nil && len(all) < maxMoreAlerts {
			all = append(all, one)
		}
	}
	return all
}

// quiet returns what is silenced: what is wrong, and what is no longer.
func (a *alerts) quiet() (all []alertShown) {
	wrong := map[string]alertShown{}
	for _, one := range a.Alerts {
		wrong[one.Alert] = one
	}
	for i := range a.Silences {
		one := wrong[a.Silences[i].Alert]
		if one.Alert == "" {
			one = alertShown{Alert: a.Silences[i].Alert, Text: "It is not wrong any more: " + a.Silences[i].Alert + "."}
		}
		one.Silenced = &a.Silences[i]
		all = append(all, one)
	}
	return all
}

func lookSilence(c *call, f url.Values) (*effect, error) {
	a, err := c.alerts()
	if err != nil {
		return nil, err
	}
	name := f.Get("alert")
	e := &effect{Back: "/", Title: "Silence an alert", Verb: "Silence it", Hidden: map[string]string{"alert": name}}
	for _, one := range a.Alerts {
		if one.Alert == name {
			e.Whom = one.Text
		}
	}
	was := a.of(name)
	if e.Whom == "" && was == nil {
		return nil, problemf(http.StatusNotFound, "There is no such alert now: it has ended.")
	}
	until := untilOf(f, "1h")
	e.Fields = append(untilFields(f, "1h"), reasonField(f, false))
	e.Notes = append(e.Notes, "It leaves the first line of this page to what else is wrong, and stays below it as silenced. Nothing else changes: what is refused is refused.")
	if end := ends(until); end != "" {
		e.Notes = append(e.Notes, end)
	}
	e.Notes = append(e.Notes, "It holds on this instance, until that is restarted. Alerts that Prometheus makes are silenced in its Alertmanager.")
	body := map[string]string{"alert": name, "until": until, "reason": f.Get("reason")}
	return e, e.silencing(c, "silence", body, was, fmt.Sprintf("Silenced %s.", untilWords(until)))
}

func lookUnsilence(c *call, f url.Values) (*effect, error) {
	a, err := c.alerts()
	if err != nil {
		return nil, err
	}
	name := f.Get("alert")
	was := a.of(name)
	if was == nil {
		return nil, problemf(http.StatusNotFound, "It is not silenced: the silence has ended.")
	}
	e := &effect{Back: "/", Title: "End a silence", Verb: "End it", Hidden: map[string]string{"alert": name}}
	for _, one := range a.Alerts {
		if one.Alert == name {
			e.Whom = one.Text
		}
	}
	return e, e.silencing(c, "unsilence", map[string]string{"alert": name}, was, "The alert is not silenced any more.")
}

// silencing asks for a dry run, and offers to do it.
func (e *effect) silencing(c *call, action string, body map[string]string, was *silencing, said string) error {
	e.operation = operation{method: "POST", path: "/v1/alerts/" + action, body: body}
	var would struct{ After *silencing }
	if foreseen, err := e.foresee(c, e.operation, &would); !foreseen {
		e.operation = operation{}
		return err
	}
	e.Rows = []effectRow{{"The alert", silenceWords(was), silenceWords(would.After)}}
	e.said = said
	e.undo = func() ([]operation, error) {
		again := operation{method: "POST", path: "/v1/alerts/silence"}
		if was != nil {
			again.body = map[string]string{"alert": was.Alert, "until": was.Until.Format(time.RFC3339Nano), "reason": was.Reason}
		}
		if would.After == nil {
			return []operation{again}, nil
		}
		now, err := c.alerts()
		if err != nil {
			return nil, err
		}
		is := now.of(would.After.Alert)
		if is == nil {
			return nil, nil
		}
		end := operation{method: "POST", path: "/v1/alerts/unsilence", body: map[string]string{"alert": is.Alert, "until": is.Until.Format(time.RFC3339Nano)}}
		if was == nil {
			return []operation{end}, nil
		}
		return []operation{end, again}, nil
	}
	return nil
}

func silenceWords(s *silencing) string {
	if s == nil {
		return "shown first"
	}
	return "silenced " + untilWords(s.Until.Format(time.RFC3339)) + ", by " + printable(s.By)
}
