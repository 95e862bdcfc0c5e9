package adminapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"
)

// maxAlerts is how many are told at once, and maxSilences how many are silenced.
const (
	maxAlerts   = 20
	maxSilences = 1000
)

// alertList is what is wrong, and what is silenced.
type alertList struct {
	Alerts   []alertState `json:"alerts"`   // the first of which explains the others
	Silences []silencing  `json:"silences"` // also of what is no longer wrong
}

// alertState is something that is wrong.
type alertState struct {
	Alert    string     `json:"alert"` // names it
	Level    string     `json:"level"`
	Text     string     `json:"text"`
	Rule     string     `json:"rule,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Silenced *silencing `json:"silenced,omitempty"`
}

// silencing keeps an alert from the first line of the console until a time.
type silencing struct {
	Alert  string    `json:"alert"`
	Until  time.Time `json:"until"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// silences are those of this instance, until it ends.
type silences struct {
	mu  sync.Mutex
	all map[string]silencing
}

// now returns those that hold, and forgets the others.
func (s *silences) now() (all []silencing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.all {
		if !one.Until.After(time.Now()) {
			delete(s.all, name)
			continue
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b silencing) int { return strings.Compare(a.Alert, b.Alert) })
	return all
}

func (s *silences) of(alert string) *silencing {
	for _, one := range s.now() {
		if one.Alert == alert {
			return &one
		}
	}
	return nil
}

// change makes a silence, or ends one if it is nil, where there is still what was seen.
func (s *silences) change(alert string, seen, is *silencing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, silenced := s.all[alert]
	if silenced && !now.Until.After(time.Now()) {
		silenced = false
	}
	switch {
	case silenced != (seen != nil) || silenced && now != *seen:
		return problemf(http.StatusConflict, "somebody else has silenced it, or ended that, just now: look, and try again")
	case is == nil:
		delete(s.all, alert)
		return nil
	case !silenced && len(s.all) >= maxSilences:
		return problemf(http.StatusConflict, "%d alerts are silenced already", len(s.all))
	}
	if s.all == nil {
		s.all = map[string]silencing{}
	}
	s.all[alert] = *is
	return nil
}

func (a *API) alerts(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	v, err := a.view()
	if err != nil {
		return nil, err
	}
	out := alertList{Alerts: []alertState{}, Silences: append([]silencing{}, a.silenced.now()...)}
	for _, h := range v.Alerts(maxAlerts) {
		out.Alerts = append(out.Alerts, alertOf(&h, a.silenced.of(h.Alert)))
	}
	return out, nil
}

func alertOf(h *telemetry.Headline, by *silencing) alertState {
	s := alertState{Alert: h.Alert, Level: h.Level, Text: h.Text, Rule: h.Rule, Silenced: by}
	if !h.Since.IsZero() {
		since := h.Since.UTC()
		s.Since = &since
	}
	return s
}

// silenceRequest silences an alert, or ends that.
type silenceRequest struct {
	Alert  string `json:"alert"`
	Until  string `json:"until"`
	Reason string `json:"reason"`
}

// silenceChange is what became of it.
type silenceChange struct {
	DryRun bool       `json:"dry_run"`
	Before *silencing `json:"before"` // null: it was not silenced
	After  *silencing `json:"after"`
}

// silence silences an alert until a time, on this instance.
func (a *API) silence(c *call) (any, error) {
	r, err := decode[silenceRequest](c)
	if err != nil {
		return nil, err
	}
	until, err := endOf(r.Until)
	switch {
	case err != nil:
		return nil, err
	case len(r.Reason) > maxReason:
		return nil, badField("/reason", "it is longer than %d bytes", maxReason)
	}
	v, err := a.view()
	if err != nil {
		return nil, err
	}
	before := a.silenced.of(r.Alert)
	known := slices.ContainsFunc(v.Alerts(len(v.Rules)*2+3), func(h telemetry.Headline) bool { return h.Alert == r.Alert })
	if !known && before == nil {
		return nil, badField("/alert", "there is no such alert now: GET /v1/alerts has those that there are")
	}
	return a.changeSilence(c, "silence", before, &silencing{r.Alert, until.UTC(), c.actor, r.Reason})
}

// maxReason is the longest reason that is kept.
const maxReason = 2000

// unsilence ends the silence of an alert.
func (a *API) unsilence(c *call) (any, error) {
	r, err := decode[struct {
		Alert string    `json:"alert"`
		Until time.Time `json:"until"`
	}](c)
	if err != nil {
		return nil, err
	}
	before := a.silenced.of(r.Alert)
	switch {
	case before == nil:
		return nil, problemf(http.StatusConflict, "the alert is not silenced")
	case !r.Until.IsZero() && !r.Until.Equal(before.Until):
		return nil, problemf(http.StatusConflict, "somebody else has silenced it since, until %s", before.Until.Format(time.RFC3339))
	}
	return a.changeSilence(c, "unsilence", before, nil)
}

// changeSilence makes a change, with an entry in the audit log.
func (a *API) changeSilence(c *call, action string, before, after *silencing) (any, error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	out := silenceChange{Before: before, After: after}
	if out.DryRun, err = q.boolean("dry_run"); err != nil || out.DryRun {
		return out, err
	}
	alert := cmp.Or(after, before).Alert
	do := func() error { return a.silenced.change(alert, before, after) }
	if a.Policy.Database == nil {
		err = do()
	} else {
		e := source.Entry{Actor: c.actor, Action: action, Kind: "alert", Target: alert}
		if after != nil {
			e.After = source.Row(control.JSON(map[string]any{"until": after.Until, "reason": after.Reason}))
		}
		err = a.Policy.Record(c.Context(), e, do)
	}
	if err != nil {
		return nil, err
	}
	a.Logger.Info("admin API changed an alert", "action", action, "actor", c.actor, "alert", alert)
	return out, nil
}
