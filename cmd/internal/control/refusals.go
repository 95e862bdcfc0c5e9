package control

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Refusals has the recorded denials of one request, from all instances.
type Refusals struct {
	ID       string     `json:"id"`
	Refusals []Refusal  `json:"refusals"` // the latest first
	Kept     int        `json:"kept"`     // the number of recorded denials of all requests
	Since    *time.Time `json:"since"`    // the time of the oldest recorded denial; null without one
	// Alone reports that the records of other instances could not be read.
	Alone bool `json:"alone,omitempty"`
}

// maxFound bounds the denials in Refusals.
const maxFound = 20

// Refusal is one recorded denial, or a request that was marked or would have been denied.
type Refusal struct {
	At        time.Time `json:"at"`
	Shadow    bool      `json:"shadow"`           // the request was allowed, but would have been denied if the rule were enforced
	Marked    bool      `json:"marked,omitempty"` // the request was allowed with a mark
	Rule      string    `json:"rule,omitempty"`
	Limit     string    `json:"limit,omitempty"`
	LimitName string    `json:"limit_name,omitempty"`
	From      string    `json:"from,omitempty"`
	Because   string    `json:"because"`
	Class     string    `json:"class,omitempty"` // the class of a request that was denied because of an overload
	Missing   string    `json:"missing,omitempty"`
	Subject   string    `json:"subject,omitempty"` // as the rule's show_key shows it
	SubjectID string    `json:"subject_id,omitempty"`
	Wait      *int64    `json:"wait"` // seconds; null: waiting does not help
	Address   string    `json:"address,omitempty"`
	Door      string    `json:"door,omitempty"`
	Method    string    `json:"method,omitempty"`
	Host      string    `json:"host,omitempty"`
	Path      string    `json:"path,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	TraceID   string    `json:"trace_id,omitempty"`
	Instance  string    `json:"instance,omitempty"`
}

func refusalOf(r *telemetry.Refusal) Refusal {
	out := Refusal{
		At: r.At.UTC(), Shadow: r.Shadow, Marked: r.Marked, Rule: r.Rule, Limit: r.Limit, LimitName: r.LimitName, From: r.From, Because: r.Because, Class: r.Class, Missing: r.Missing,
		Subject: r.Subject, SubjectID: r.SubjectID, Address: r.Address, Door: r.Door, Method: r.Method, Host: r.Host, Path: r.Path,
		RequestID: r.RequestID, TraceID: r.TraceID, Instance: r.Instance,
	}
	if r.Wait >= 0 {
		out.Wait = &r.Wait
	}
	return out
}

// Refusals returns the recorded denials of the request with the given ID.
func (c *Control) Refusals(ctx context.Context, who Caller, id string) (*Refusals, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	switch {
	case id == "":
		return nil, BadParameter("id", "write the ID of the request: its X-Request-Id, or the ID of its trace")
	case c.telemetry == nil:
		return nil, Problemf(http.StatusConflict, "denied requests are not recorded: start sluice with --telemetry")
	}
	kept := c.telemetry.FindRefusals(ctx, id)
	out := &Refusals{ID: id, Refusals: []Refusal{}, Kept: kept.Kept, Since: timeOf(kept.Since), Alone: kept.Err != nil}
	if kept.Err != nil {
		c.logger.Warn("cannot read the denied requests of other instances", "error", kept.Err)
	}
	found := kept.Refusals
	hidden := !who.Role.May(source.Operator) && c.hidesAddresses()
	for i := range found[:min(len(found), maxFound)] {
		if hidden {
			found[i].Address = ""
		}
		out.Refusals = append(out.Refusals, refusalOf(&found[i]))
	}
	return out, nil
}

// hidesAddresses reports whether a rule hides the addresses of clients. If one does, no recorded denial shows a viewer
// an address, because several rules may have denied the same request.
func (c *Control) hidesAddresses() bool {
	return slices.ContainsFunc(c.policy.now().document.Rules, func(r policy.Rule) bool {
		return r.ShowKey != "" && r.ShowKey != "whole" && slices.Contains(r.Key, "client_ip")
	})
}
