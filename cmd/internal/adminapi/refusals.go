package adminapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// refusals are those of one request that any instance keeps.
type refusals struct {
	ID       string     `json:"id"`
	Refusals []refusal  `json:"refusals"` // the latest first
	Kept     int        `json:"kept"`     // of all requests
	Since    *time.Time `json:"since"`    // of the oldest that is kept; null: none is
	// Alone says that the refusals of other instances could not be read.
	Alone bool `json:"alone,omitempty"`
}

// maxFound is how many refusals of one ID are told.
const maxFound = 20

// refusal is one, as far as it is known.
type refusal struct {
	At        time.Time `json:"at"`
	Shadow    bool      `json:"shadow"` // it would have been refused, and passed
	Rule      string    `json:"rule,omitempty"`
	Limit     string    `json:"limit,omitempty"`
	LimitName string    `json:"limit_name,omitempty"`
	From      string    `json:"from,omitempty"`
	Because   string    `json:"because"`
	Missing   string    `json:"missing,omitempty"`
	Subject   string    `json:"subject,omitempty"` // as its rule lets people see it
	SubjectID string    `json:"subject_id,omitempty"`
	Wait      *int64    `json:"wait"` // seconds; null: none that helps
	Address   string    `json:"address,omitempty"`
	Door      string    `json:"door,omitempty"`
	Method    string    `json:"method,omitempty"`
	Host      string    `json:"host,omitempty"`
	Path      string    `json:"path,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	TraceID   string    `json:"trace_id,omitempty"`
	Instance  string    `json:"instance,omitempty"`
}

func refusalOf(r *telemetry.Refusal) refusal {
	out := refusal{
		At: r.At.UTC(), Shadow: r.Shadow, Rule: r.Rule, Limit: r.Limit, LimitName: r.LimitName, From: r.From, Because: r.Because, Missing: r.Missing,
		Subject: r.Subject, SubjectID: r.SubjectID, Address: r.Address, Door: r.Door, Method: r.Method, Host: r.Host, Path: r.Path,
		RequestID: r.RequestID, TraceID: r.TraceID, Instance: r.Instance,
	}
	if r.Wait >= 0 {
		out.Wait = &r.Wait
	}
	return out
}

// refusals finds those of a request by its ID.
func (a *API) refusals(c *call) (any, error) {
	q, err := c.query("id")
	switch {
	case err != nil:
		return nil, err
	case q.values["id"] == "":
		return nil, badParameter("id", "write the ID of the request: what its answer has in X-Request-Id, or that of its trace")
	case a.Refusals == nil:
		return nil, problemf(http.StatusConflict, "no refusals are kept: start sluice with --telemetry")
	}
	kept := a.Refusals(c.Context(), q.values["id"])
	out := refusals{ID: q.values["id"], Refusals: []refusal{}, Kept: kept.Kept, Alone: kept.Err != nil}
	if kept.Err != nil {
		a.Logger.Warn("admin API: the refusals of other instances cannot be read", "error", kept.Err)
	}
	if !kept.Since.IsZero() {
		since := kept.Since.UTC()
		out.Since = &since
	}
	found := kept.Refusals
	hidden := !c.role.May(source.Operator) && a.hidesAddresses()
	for i := range found[:min(len(found), maxFound)] {
		if hidden {
			found[i].Address = ""
		}
		out.Refusals = append(out.Refusals, refusalOf(&found[i]))
	}
	return out, nil
}

// hidesAddresses reports whether a rule says that people are not to see the addresses of clients. Where
// other rules refuse the same requests, these tell none either.
func (a *API) hidesAddresses() bool {
	return slices.ContainsFunc(a.Policy.Now().Document.Rules, func(r policy.Rule) bool {
		return r.ShowKey != "" && r.ShowKey != "whole" && slices.Contains(r.Key, "client_ip")
	})
}
