package redisstore

import (
	"github.com/sluicehq/sluice/kernel"
)

// coalesced is a group of identical requests of a call, or a single request. The script returns how many of the
// group are admitted, first come first served, and the answer to each request follows from that number. Because no
// other charge uses their keys in between, and all are decided at one time, the answers are the same as if the
// requests were decided one by one.
type coalesced struct {
	head *request
	n    int
	at   int // index of its first key in keyIDs
}

// coalesce groups the requests, and numbers their keys.
func (c *scriptCall) coalesce() {
	c.keys, c.longs, c.keyIDs, c.groups = c.keys[:0], c.longs[:0], c.keyIDs[:0], c.groups[:0]
	c.lastUser, c.lastLong = c.lastUser[:0], c.lastLong[:0]
	for _, r := range c.requests {
		id, known := c.keyID(r, &r.charges[0])
		if known && c.join(r, *c.lastUserOf(&r.charges[0], id)) {
			continue
		}
		r.group, r.index = len(c.groups), 0
		c.groups = append(c.groups, coalesced{r, 1, len(c.keyIDs)})
		for i := range r.charges {
			if i > 0 {
				id, _ = c.keyID(r, &r.charges[i])
			}
			c.keyIDs = append(c.keyIDs, id)
			*c.lastUserOf(&r.charges[i], id) = r.group
		}
	}
	clear(c.ids)
}

// join adds r to group n if r is identical to its requests, and if no later group has one of its keys.
func (c *scriptCall) join(r *request, n int) bool {
	g := &c.groups[n]
	if !g.head.sameAs(r) {
		return false
	}
	for _, id := range c.keyIDs[g.at : g.at+len(r.charges)] {
		if c.lastUser[id] != n {
			return false
		}
	}
	r.group, r.index = n, g.n
	g.n++
	return true
}

// keyID returns the index of a charge's name in keys or longs, adding it if it is missing.
func (c *scriptCall) keyID(r *request, ch *charge) (id uint16, known bool) {
	name := r.name(ch)
	list, users := &c.keys, &c.lastUser
	if long(ch.plan) {
		list, users = &c.longs, &c.lastLong
	}
	if len(c.requests) > 1 { // the keys of one request are all different
		if id, known = c.ids[name]; known {
			return id, true
		}
		c.ids[name] = uint16(len(*list))
	}
	*list, *users = append(*list, name), append(*users, 0)
	return uint16(len(*list) - 1), false
}

// lastUserOf returns the element of lastUser or lastLong for the key of a charge.
func (c *scriptCall) lastUserOf(ch *charge, id uint16) *int {
	if long(ch.plan) {
		return &c.lastLong[id]
	}
	return &c.lastUser[id]
}

// sameAs reports whether r and o can be in one group: whether they have the same charges of meters and windows.
// Logs, requests that may offend, and owed costs are excluded, because the receipt of one request would not follow
// from the receipt of another.
func (r *request) sameAs(o *request) bool {
	if len(r.charges) != len(o.charges) || r.look || o.look || string(r.names) != string(o.names) {
		return false
	}
	for i, c := range r.charges {
		if c != o.charges[i] || c.cost <= 0 || c.plan.Kernel > kernel.Window || c.flags&flagOwe != 0 {
			return false
		}
	}
	return true
}

// admitted returns how many requests of the group of r are admitted.
func (r *request) admitted() int64 {
	least, at := int64(r.n), -1
	if r.n == 1 {
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

// firstNumber returns the first number that the script would have returned for a charge if the requests of the
// group had been decided one by one. turn is the number of requests before this one in the group, had is the level
// or count before the whole group, times is how often the cost fits, and admitted is the number of admitted
// requests.
func (c *charge) firstNumber(had, times, turn, admitted int64) int64 {
	taken, fits := min(admitted, times), times > admitted
	if turn < admitted {
		taken, fits = min(turn+1, times), turn < times
	}
	used := had + c.plan.Level(taken*int64(c.cost))
	if !fits {
		return -1 - used
	}
	return used
}
