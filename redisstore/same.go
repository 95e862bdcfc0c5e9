package redisstore

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
	c.keys, c.logs, c.ids, c.groups = c.keys[:0], c.logs[:0], c.ids[:0], c.groups[:0]
	c.users, c.owners = c.users[:0], c.owners[:0]
	for _, r := range c.requests {
		id, known := c.key(r, &r.charges[0])
		if known && c.join(r, *c.user(&r.charges[0], id)) {
			continue
		}
		r.group, r.turn = len(c.groups), 0
		c.groups = append(c.groups, group{r, 1, len(c.ids)})
		for i := range r.charges {
			if i > 0 {
				id, _ = c.key(r, &r.charges[i])
			}
			c.ids = append(c.ids, id)
			*c.user(&r.charges[i], id) = r.group
		}
	}
	clear(c.known)
}

// join adds r to the group n, if it asks for the same and nobody has asked for any of its
// keys since.
func (c *call) join(r *request, n int) bool {
	g := &c.groups[n]
	if !g.head.like(r) {
		return false
	}
	for _, id := range c.ids[g.ids : g.ids+len(r.charges)] {
		if c.users[id] != n {
			return false
		}
	}
	r.group, r.turn = n, g.many
	g.many++
	return true
}

// key returns the place of a charge's name in keys or logs, adding it if it is not known.
func (c *call) key(r *request, ch *charge) (id uint16, known bool) {
	name := r.name(ch)
	list, users := &c.keys, &c.users
	if exactLog(ch.plan) {
		list, users = &c.logs, &c.owners
	}
	if len(c.requests) > 1 { // within one request all are different
		if id, known = c.known[name]; known {
			return id, true
		}
		c.known[name] = uint16(len(*list))
	}
	*list, *users = append(*list, name), append(*users, 0)
	return uint16(len(*list) - 1), false
}

// user returns where the last group stands that has the key of a charge.
func (c *call) user(ch *charge, id uint16) *int {
	if exactLog(ch.plan) {
		return &c.owners[id]
	}
	return &c.users[id]
}

// like reports whether r and o ask for the same units of meters and windows. The receipts
// of a log do not follow from each other.
func (r *request) like(o *request) bool {
	if len(r.charges) != len(o.charges) || r.look || o.look || string(r.names) != string(o.names) {
		return false
	}
	for i, c := range r.charges {
		if c != o.charges[i] || c.cost <= 0 || c.plan.Kernel.Log() {
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
	used := had + c.plan.Level(taken*int64(c.cost))
	if !fits {
		return -1 - used
	}
	return used
}
