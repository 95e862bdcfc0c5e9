package control

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"
)

// maxAlerts bounds the alerts in an answer. maxSilences bounds the silenced alerts.
const (
	maxAlerts   = 20
	maxSilences = 1000
)

// AlertList has the present alerts and silences.
type AlertList struct {
	Alerts   []Alert   `json:"alerts"`   // an alert comes before the alerts that it explains
	Silences []Silence `json:"silences"` // including silences of alerts that are no longer active
}

// Alert is an active alert.
type Alert struct {
	Alert    string     `json:"alert"` // the name of the alert
	Level    string     `json:"level"`
	Text     string     `json:"text"`
	Rule     string     `json:"rule,omitempty"`
	Upstream string     `json:"upstream,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Silenced *Silence   `json:"silenced,omitempty"`
}

// Silence keeps an alert out of the first line of the console until a time.
type Silence struct {
	Alert  string    `json:"alert"`
	Until  time.Time `json:"until"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// silences has the silences of this instance, which end with the process.
type silences struct {
	mu  sync.Mutex
	all map[string]Silence
}

// now deletes the silences that have ended, and returns the others.
func (s *silences) now() (all []Silence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.all {
		if !one.Until.After(time.Now()) {
			delete(s.all, name)
			continue
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Silence) int { return strings.Compare(a.Alert, b.Alert) })
	return all
}

func (s *silences) find(alert string) *Silence {
	for _, one := range s.now() {
		if one.Alert == alert {
			return &one
		}
	}
	return nil
}

// change replaces the old silence of an alert with the new one. It fails if the alert no longer has the old silence. An
// alert that is not silenced has the silence nil.
func (s *silences) change(alert string, before, after *Silence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, silenced := s.all[alert]
	if silenced && !now.Until.After(time.Now()) {
		silenced = false
	}
	switch {
	case silenced != (before != nil) || silenced && now != *before:
		return Problemf(http.StatusConflict, "another request has just changed the silence of the alert: read it again, and retry")
	case after == nil:
		delete(s.all, alert)
		return nil
	case !silenced && len(s.all) >= maxSilences:
		return Problemf(http.StatusConflict, "%d alerts are silenced already", len(s.all))
	}
	if s.all == nil {
		s.all = map[string]Silence{}
	}
	s.all[alert] = *after
	return nil
}

// Alerts returns the present alerts and silences.
func (c *Control) Alerts(who Caller) (*AlertList, error) {
	v, err := c.view(who, source.Viewer)
	if err != nil {
		return nil, err
	}
	out := &AlertList{Alerts: []Alert{}, Silences: append([]Silence{}, c.silences.now()...)}
	for _, h := range v.Alerts(maxAlerts) {
		out.Alerts = append(out.Alerts, alertOf(&h, c.silences.find(h.Alert)))
	}
	return out, nil
}

func alertOf(h *telemetry.Headline, by *Silence) Alert {
	return Alert{Alert: h.Alert, Level: h.Level, Text: h.Text, Rule: h.Rule, Upstream: h.Upstream, Since: timeOf(h.Since), Silenced: by}
}

// SilenceRequest silences an alert until a time.
type SilenceRequest struct {
	Alert  string `json:"alert"`
	Until  string `json:"until"`
	Reason string `json:"reason"`
}

// SilenceChange is the silence of an alert before and after a change.
type SilenceChange struct {
	DryRun bool     `json:"dry_run"`
	Before *Silence `json:"before"` // null: the alert was not silenced
	After  *Silence `json:"after"`
}

// Silence silences an alert until a time, on this instance.
func (c *Control) Silence(ctx context.Context, who Caller, r SilenceRequest, dry bool) (*SilenceChange, error) {
	v, err := c.view(who, source.Operator)
	if err != nil {
		return nil, err
	}
	until, err := endOf(r.Until)
	switch {
	case err != nil:
		return nil, err
	case len(r.Reason) > maxReason:
		return nil, BadField("/reason", "the reason is longer than %d bytes", maxReason)
	}
	before := c.silences.find(r.Alert)
	known := slices.ContainsFunc(v.Alerts(math.MaxInt), func(h telemetry.Headline) bool { return h.Alert == r.Alert })
	if !known && before == nil {
		return nil, BadField("/alert", "no such alert: GET /v1/alerts lists the current ones")
	}
	return c.changeSilence(ctx, who, "silence", dry, before, &Silence{r.Alert, until.UTC(), who.Name, r.Reason})
}

// maxReason is the maximum size of a reason in bytes.
const maxReason = 2000

// UnsilenceRequest ends the silence of an alert. If Until is set, it must be the end of the present silence.
type UnsilenceRequest struct {
	Alert string    `json:"alert"`
	Until time.Time `json:"until"`
}

// Unsilence ends the silence of an alert.
func (c *Control) Unsilence(ctx context.Context, who Caller, r UnsilenceRequest, dry bool) (*SilenceChange, error) {
	if err := who.Needs(source.Operator); err != nil {
		return nil, err
	}
	before := c.silences.find(r.Alert)
	switch {
	case before == nil:
		return nil, Problemf(http.StatusConflict, "the alert is not silenced")
	case !r.Until.IsZero() && !r.Until.Equal(before.Until):
		return nil, Problemf(http.StatusConflict, "another request has silenced the alert until %s", before.Until.Format(time.RFC3339))
	}
	return c.changeSilence(ctx, who, "unsilence", dry, before, nil)
}

// changeSilence changes the silence of an alert, and writes an entry to the audit log.
func (c *Control) changeSilence(ctx context.Context, who Caller, action string, dry bool, before, after *Silence) (*SilenceChange, error) {
	out := &SilenceChange{DryRun: dry, Before: before, After: after}
	if dry {
		return out, nil
	}
	alert := cmp.Or(after, before).Alert
	e := source.Entry{Actor: who.Name, Action: action, Kind: "alert", Target: alert}
	if after != nil {
		e.After = source.Row(JSON(map[string]any{"until": after.Until, "reason": after.Reason}))
	}
	err := c.policy.record(ctx, e, func() error { return c.silences.change(alert, before, after) })
	if err != nil {
		return nil, err
	}
	c.logAct(who, "alert changed", "action", action, "alert", alert)
	return out, nil
}
