package checkapi

import (
	"net/http"
	"time"

	"github.com/sluicehq/sluice/policy"
)

const (
	MaxBody    = maxBody
	MaxLarge   = maxLarge
	SmallBatch = smallBatch
)

// Routes returns all operations.
func Routes() []string {
	all := []string{"GET " + documentPath}
	for path := range operations {
		all = append(all, "POST "+path)
	}
	return all
}

// Members returns the names of the members of objects, by the names of their schemas.
func Members() map[string][]string {
	of := func(path string) []string { return namesOf(checkMembers, operations[path].takes&^(1<<inChecks)) }
	return map[string][]string{
		"Check": of("/v1/check"), "Plain": of("/v1/peek"), "Settlement": of("/v1/settle"),
		"Request": namesOf(requestMembers, anyMember), "Outcome": namesOf(outcomeMembers, anyMember),
	}
}

// Checked is a decoded check.
type Checked struct {
	Method, Host, Path, Client, Body, Rule, ID, Place string
	HasBody, Ends                                     bool
	Header                                            http.Header
	Attributes, Key                                   map[string]string
	Cost                                              int64
	Mode                                              policy.Mode
	Outcome                                           policy.Outcome
	At                                                time.Time
}

// Decode reads the body of an operation. If the body is invalid, pointer is the position of the mistake.
func Decode(path, text string) (checks []Checked, pointer string, ok bool) {
	c := newCall(nil)
	d := &c.decoder
	d.begin(text, operations[path])
	if !d.decode() {
		return nil, *d.problem.Errors[0].Pointer, false
	}
	all := c.checks[:c.used]
	if d.batch {
		all = all[1:]
	}
	for _, one := range all {
		r := &one.request
		checked := Checked{
			Method: r.Method, Host: r.Host, Path: one.target, Body: one.body, Rule: one.rule, ID: r.ID, HasBody: r.Body != nil,
			Header: r.Header, Attributes: r.Attributes, Key: one.key, Cost: r.Cost, Mode: one.mode, Outcome: one.outcome, At: r.Time,
			Ends: r.Ends, Place: one.place,
		}
		if r.Peer.IsValid() {
			checked.Client = r.Peer.String()
		}
		checks = append(checks, checked)
	}
	return checks, "", true
}
