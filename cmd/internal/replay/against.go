package replay

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// versus compares the decisions of two policies about the requests of one part of the clients.
type versus struct {
	both, only, newly int64
	clients           map[netip.Addr]*clientTally // the clients that either policy has denied, at most mostClients
	mostClients       int
}

type clientTally struct {
	name                    string
	requests, before, after int64
}

// note counts a request of a client, which each of the two policies allows or not.
func (v *versus) note(client netip.Addr, name string, before, after bool) {
	switch {
	case !before && !after:
		v.both++
	case !before:
		v.only++
	case !after:
		v.newly++
	}
	c := v.clients[client]
	if c == nil {
		if before && after || len(v.clients) >= v.mostClients {
			return
		}
		if v.clients == nil {
			v.clients = map[netip.Addr]*clientTally{}
		}
		c = &clientTally{name: strings.Clone(name)}
		v.clients[client] = c
	}
	c.requests++
	if !before {
		c.before++
	}
	if !after {
		c.after++
	}
}

// merge adds the counts of another part of the clients. No client is in both parts.
func (v *versus) merge(o *versus) {
	v.both, v.only, v.newly = v.both+o.both, v.only+o.only, v.newly+o.newly
	if v.clients == nil {
		v.clients = o.clients
		return
	}
	for a, c := range o.clients {
		v.clients[a] = c
	}
}

// maxChanged is the maximum number of clients in each list of changes.
const maxChanged = 20

// difference returns the changes from the report before to the report after.
func (v *versus) difference(before, after *Report) *Difference {
	d := &Difference{Report: after, Both: v.both, Only: v.only, Newly: v.newly}
	for _, name := range before.Order {
		d.Rules = append(d.Rules, RuleChange{name, ruleOf(before, name), ruleOf(after, name)})
	}
	for _, name := range after.Order {
		if ruleOf(before, name) == nil {
			d.Rules = append(d.Rules, RuleChange{name, nil, ruleOf(after, name)})
		}
	}
	for a, c := range v.clients {
		change := ClientChange{cmp.Or(c.name, a.String()), c.requests, c.before, c.after}
		switch {
		case c.before == 0 && c.after > 0:
			d.ClientsNewly++
		case c.after == 0 && c.before > 0:
			d.ClientsFreed++
		}
		switch {
		case c.after > c.before:
			d.Suffer = append(d.Suffer, change)
		case c.before > c.after:
			d.Relieved = append(d.Relieved, change)
		}
	}
	d.Suffer, d.Relieved = largest(d.Suffer), largest(d.Relieved)
	return d
}

// largest returns the largest changes, the largest first.
func largest(all []ClientChange) []ClientChange {
	slices.SortFunc(all, func(a, b ClientChange) int {
		return cmp.Or(cmp.Compare(distance(b), distance(a)), strings.Compare(a.Client, b.Client))
	})
	return slices.Clone(all[:min(len(all), maxChanged)])
}

func distance(c ClientChange) int64 { return max(c.After-c.Before, c.Before-c.After) }

func ruleOf(r *Report, name string) *Rule {
	rule, known := r.Rules[name]
	if !known {
		return nil
	}
	return &rule
}
