package fair

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// MaxPosted is the maximum number of tenants for which a process posts the demand separately, counted over all its
// [Cap]s. For each Cap, it posts the demand of the other tenants as one sum.
const MaxPosted = 1000

// TenantDemand is the demand of a tenant in a window. The ID of a tenant is the same in all processes; the ID 0
// stands for several tenants, with the sum of their demand.
type TenantDemand struct {
	ID             uint64
	Demand, Weight int64
}

// Post has the demand of the tenants of one [Cap] in one process.
type Post struct {
	Cap     uint64 // the ID of the Cap
	Tenants []TenantDemand
}

// Demand returns the demand of the tenants in this process, in the window that ends now.
func (c *Cap) Demand(now int64) (all []TenantDemand) {
	c.dividing.Lock()
	defer c.dividing.Unlock()
	c.renew(now)
	for _, t := range *c.known.Load() {
		if t.demand > 0 {
			all = append(all, TenantDemand{t.id, t.demand, t.weight.Load()})
		}
	}
	if c.rest.demand > 0 {
		all = append(all, TenantDemand{0, c.rest.demand, 1})
	}
	return all
}

// Receive sets the demands of tenants in other processes. For a second, the cap is divided according to these demands,
// too. Demands with the same ID are summed.
func (c *Cap) Receive(demands []TenantDemand, now int64) {
	o := others{at: now, tenants: make(map[uint64]*other, len(demands))}
	for _, a := range demands {
		sum := &o.sum
		if a.ID != 0 {
			if sum = o.tenants[a.ID]; sum == nil {
				sum = &other{}
				o.tenants[a.ID] = sum
			}
			sum.weight = max(sum.weight, a.Weight)
		} else {
			sum.weight += a.Weight
		}
		sum.demand = min(sum.demand+a.Demand, farAhead)
	}
	c.dividing.Lock()
	defer c.dividing.Unlock()
	c.others = o
}

// others has the demands of other processes.
type others struct {
	at      int64
	tenants map[uint64]*other
	sum     other // the sum for tenants without an ID
}

type other struct {
	demand, weight int64
	here           bool // whether this process knows the tenant, too
}

// recent returns the demands of other processes, or nil if they are too old.
func (c *Cap) recent(now int64) *others {
	if age := now - c.others.at; age < -othersLast || age > othersLast {
		return nil
	}
	return &c.others
}

// demand returns the demand that a tenant of this process has in other processes. It notes that this process knows the
// tenant: see visitRest.
func (o *others) demand(id uint64) int64 {
	if o == nil || o.tenants[id] == nil {
		return 0
	}
	o.tenants[id].here = true
	return o.tenants[id].demand
}

// visitRest calls visit for each tenant that only other processes know, and once with the sum for all tenants without
// an ID. This process knows a tenant if the method demand was called for the tenant since the last visitRest.
func (o *others) visitRest(visit func(demand, weight int64) int64) {
	if o == nil {
		return
	}
	for _, t := range o.tenants {
		if !t.here {
			visit(t.demand, t.weight)
		}
		t.here = false
	}
	visit(o.sum.demand, o.sum.weight)
}

// Trim keeps the MaxPosted largest demands in all posts together. In each post, it replaces all other demands by their
// sum. A sum that a post already has becomes part of the new sum, even if it is among the largest demands.
func Trim(posts []Post) {
	total := 0
	for i := range posts {
		total += len(posts[i].Tenants)
	}
	if total <= MaxPosted {
		return
	}
	all := make([]*TenantDemand, 0, total)
	for i := range posts {
		for j := range posts[i].Tenants {
			all = append(all, &posts[i].Tenants[j])
		}
	}
	slices.SortFunc(all, func(a, b *TenantDemand) int { return cmp.Or(cmp.Compare(b.Demand, a.Demand), cmp.Compare(a.ID, b.ID)) })
	for _, a := range all[MaxPosted:] {
		a.ID = 0
	}
	for i := range posts {
		named, sum := posts[i].Tenants[:0], TenantDemand{}
		for _, a := range posts[i].Tenants {
			if a.ID != 0 {
				named = append(named, a)
				continue
			}
			sum.Demand += a.Demand
			sum.Weight += a.Weight
		}
		if sum.Demand > 0 {
			named = append(named, sum)
		}
		posts[i].Tenants = named
	}
}

// format is the first byte of a post. Posts of another format are of another version.
const format = 1

// Append appends posts in a binary format, with about 12 bytes for each tenant.
func Append(dst []byte, posts []Post) []byte {
	dst = append(dst, format)
	for _, p := range posts {
		dst = binary.LittleEndian.AppendUint64(dst, p.Cap)
		dst = binary.AppendUvarint(dst, uint64(len(p.Tenants)))
		for _, a := range p.Tenants {
			dst = binary.LittleEndian.AppendUint64(dst, a.ID)
			dst = binary.AppendUvarint(dst, uint64(a.Demand))
			dst = binary.AppendUvarint(dst, uint64(a.Weight))
		}
	}
	return dst
}

var errNoPost = errors.New("fair: the text is not a post of demands, or has the format of another version")

// Read calls visit for every demand in a text from [Append], with the ID of the [Cap]. If any part of the text is
// invalid, Read makes no calls.
func Read(post []byte, visit func(id uint64, a TenantDemand)) error {
	if err := read(post, func(uint64, TenantDemand) {}); err != nil {
		return err
	}
	return read(post, visit)
}

func read(post []byte, visit func(id uint64, a TenantDemand)) error {
	r := reader{rest: post}
	if r.byte() != format {
		return errNoPost
	}
	for len(r.rest) > 0 && !r.bad {
		id := r.id()
		for n := r.number(); n > 0 && !r.bad; n-- {
			a := TenantDemand{ID: r.id(), Demand: int64(r.number()), Weight: int64(r.number())}
			if most := uint64(MaxWeight * MaxTenants); a.Weight < 1 || uint64(a.Weight) > most || a.Demand < 0 || a.Demand > farAhead {
				return errNoPost
			}
			if !r.bad {
				visit(id, a)
			}
		}
	}
	if r.bad {
		return errNoPost
	}
	return nil
}

// reader reads a post. After the end of the post, its methods return zeros and set bad.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) id() uint64 {
	if len(r.rest) < 8 {
		r.bad, r.rest = true, nil
		return 0
	}
	id := binary.LittleEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return id
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}
