package redisstore

import (
	"slices"

	"github.com/sluicehq/sluice"
)

// group is one or more requests of a call that ask for the same. The script is asked once
// how many of them are admitted, first come first served, and what each of them is told
// follows from that. As nothing in between touches their keys, and all of it is decided
// at one time, it is what they would be told one by one.
type group struct {
	head *request
	many int
	ids  int // where those of its keys are
}

// gather groups the requests, and numbers their keys.
func (c *call) gather() {
	c.keys, c.logs, c.ids, c.users, c.groups = c.keys[:0], c.logs[:0], c.ids[:0], c.users[:0], c.groups[:0]
	for _, r := range c.requests {
		if g := c.same(r); g >= 0 {
			r.group, r.turn = g, c.groups[g].many
			c.groups[g].many++
			continue
		}
		r.group, r.turn = len(c.groups), 0
		c.groups = append(c.groups, group{r, 1, len(c.ids)})
		for i := range r.charges {
			c.ids = append(c.ids, c.key(r, &r.charges[i]))
		}
	}
	clear(c.known)
}

// key returns the place of a charge's name in keys or logs, adding it if it is new.
func (c *call) key(r *request, ch *charge) uint16 {
	if ch.plan.Kernel == sluice.Units {
		return c.place(&c.logs, r.name(ch))
	}
	id := c.place(&c.keys, r.name(ch))
	if int(id) == len(c.users) {
		c.users = append(c.users, 0)
	}
	c.users[id] = r.group
	return id
}

func (c *call) place(list *[]string, name string) uint16 {
	if len(c.requests) > 1 { // within one request all are different
		if id, ok := c.known[name]; ok {
			return id
		}
		c.known[name] = uint16(len(*list))
	}
	*list = append(*list, name)
	return uint16(len(*list) - 1)
}

// same returns the group that r is of, or -1. It is of one that asks for the same, if
// nobody has asked for any of the keys since.
func (c *call) same(r *request) int {
	if len(c.requests) == 1 || r.charges[0].plan.Kernel == sluice.Units {
		return -1
	}
	id, ok := c.known[r.name(&r.charges[0])]
	if !ok {
		return -1
	}
	n := c.users[id]
	g := c.groups[n]
	if !g.head.like(r) {
		return -1
	}
	touched := func(id uint16) bool { return c.users[id] != n }
	if slices.ContainsFunc(c.ids[g.ids:g.ids+len(r.charges)], touched) {
		return -1
	}
	return n
}

// like reports whether r and o ask for the same units of meters and windows. The receipts
// of a log do not follow from each other.
func (r *request) like(o *request) bool {
	if len(r.charges) != len(o.charges) || r.look || o.look || string(r.names) != string(o.names) {
		return false
	}
	for i, c := range r.charges {
		if c != o.charges[i] || c.cost <= 0 || c.plan.Kernel == sluice.Units {
			return false
		}
	}
	return true
}

// admitted returns how many of the group of r are admitted.
func (r *request) admitted() int64 {
	least, at := int64(r.many), -1
	if r.many == 1 {
		return least
	}
	for i := range r.charges {
		c := &r.charges[i]
		if at += c.numbers() + 1; c.flags&flagShadow == 0 {
			least = min(least, int64(number(r.reply, at)))
		}
	}
	return least
}

// first returns what the first number of the reply to a charge would be if its request
// had come alone, after turn others like it. Had is what it was before all of them, times is
// how often the cost fits, and admitted is how many of the requests are.
func (c *charge) first(had, times, turn, admitted int64) int64 {
	taken, fits := min(admitted, times), times > admitted
	if turn < admitted {
		taken, fits = min(turn+1, times), turn < times
	}
	unit := int64(1)
	if c.plan.Kernel == sluice.Meter {
		unit = c.plan.Unit
	}
	used := had + taken*int64(c.cost)*unit
	if !fits {
		return -1 - used
	}
	return used
}
