package fair

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// readAll returns what a post says, with the cap's ID in place of an ID of 0.
func readAll(post []byte) (all map[uint64][]TenantDemand, err error) {
	all = make(map[uint64][]TenantDemand)
	err = Read(post, func(id uint64, a TenantDemand) { all[id] = append(all[id], a) })
	return all, err
}

func TestPostIsRead(t *testing.T) {
	t.Parallel()
	posts := []Post{
		{Cap: 7, Tenants: []TenantDemand{{1, 2, 3}, {^uint64(0), farAhead, MaxWeight}, {0, 5, MaxWeight * MaxTenants}}},
		{Cap: 8, Tenants: []TenantDemand{{1, 1, 1}}},
	}
	post := Append(nil, posts)
	all, err := readAll(post)
	if err != nil || len(all) != 2 || !slices.Equal(all[7], posts[0].Tenants) || !slices.Equal(all[8], posts[1].Tenants) {
		t.Fatalf("%v, %v", all, err)
	}
	for n := range post {
		if all, err := readAll(post[:n]); err == nil && n != 1 && len(all) == 2 || err != nil && len(all) > 0 {
			t.Errorf("of %d bytes of %d: %v, %v", n, len(post), all, err)
		}
	}
	post[0]++
	if _, err := readAll(post); err == nil {
		t.Error("a post of another version was read")
	}
}

// FuzzRead holds that a post can be anything, and that what is read of it can be divided.
func FuzzRead(f *testing.F) {
	f.Add(Append(nil, []Post{{Cap: 7, Tenants: []TenantDemand{{1, 2, 3}, {0, 5, 6}}}}))
	f.Add([]byte{format})
	f.Fuzz(func(t *testing.T, post []byte) {
		all, err := readAll(post)
		if err != nil && len(all) > 0 {
			t.Fatalf("%v, and it was read: %v", err, all)
		}
		for _, asked := range all {
			c := New("cap", 1000, time.Second, 1000, 1)
			c.Receive(asked, 5e6)
			var got Terms
			c.Ask("t", 1, 1, 5e6, &got)
			if c.Ask("t", 1, 1, 5e6+c.epoch, &got); got.Each < 0 {
				t.Fatalf("terms %+v", got)
			}
		}
	})
}

func TestTrim(t *testing.T) {
	t.Parallel()
	var posts []Post
	demand, weight := int64(0), int64(0)
	for p := range 3 {
		post := Post{Cap: uint64(p + 1)}
		for i := range 700 {
			a := TenantDemand{uint64(1 + i), int64(1 + (i*3+p)%2100), 1 + int64(i%5)}
			demand, weight = demand+a.Demand, weight+a.Weight
			post.Tenants = append(post.Tenants, a)
		}
		posts = append(posts, post)
	}
	Trim(posts)
	named, least, most := 0, int64(farAhead), int64(0)
	for _, p := range posts {
		for _, a := range p.Tenants {
			if demand, weight = demand-a.Demand, weight-a.Weight; a.ID != 0 {
				named++
				least = min(least, a.Demand)
			} else {
				most = max(most, a.Demand)
			}
		}
	}
	if named != MaxPosted || demand != 0 || weight != 0 || least != 1101 || most == 0 {
		t.Errorf("%d are named, who ask for %d or more; demand of %d and weight of %d are missing", named, least, demand, weight)
	}
	if post := Append(nil, posts); len(post) > 13<<10 {
		t.Errorf("a post of %d bytes", len(post))
	}
}

// For a second, the demand of a tenant in other processes counts, too.
func TestDemandElsewhere(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	c, now := New("cap", 1000, time.Second, 1000, 1), int64(100*second)
	other := New("cap", 1000, time.Second, 1000, 1)
	var got Terms
	each := func(ask int64) int64 {
		for range 8 {
			now += c.epoch
			c.Ask("a", 1, ask, now, &got)
			other.Ask("a", 1, 100, now, &got)
			other.Ask("b", 3, 1000, now, &got)
			c.Receive(other.Demand(now), now)
		}
		now += c.epoch
		c.Look("a", 1, 1, now, &got)
		return got.Each
	}
	// The level is 1000/4 a second, and twice that as nothing is ever taken: the bucket is empty.
	if got := each(150); got < 1_999_000 || got > 2_001_000 {
		t.Errorf("a unit of one who asks for 1000 a second takes %d ns", got)
	}
	now += 2 * second
	if c.Look("a", 1, 1, now, &got); got.Each != 1e6 {
		t.Errorf("a unit takes %d ns once nobody asks", got.Each)
	}
}

func TestManyTenants(t *testing.T) {
	t.Parallel()
	c, now := New("cap", 1000, time.Second, 1000, 1), int64(100_000_000)
	var got Terms
	for i := range MaxTenants + 100 {
		c.Ask(fmt.Sprint(i), 1, 1, now, &got)
	}
	if c.many != MaxTenants || c.rest.asked.Load() != 100 {
		t.Fatalf("%d are told apart, and %d units were asked for by others", c.many, c.rest.asked.Load())
	}
	now += c.epoch
	if got := len(c.Demand(now)); got != MaxTenants+1 {
		t.Fatalf("%d are said to have asked", got)
	}
	now += 6 * c.epoch
	if c.Ask("new", 1, 1, now, &got); got.Short || c.many != 1 {
		t.Fatalf("after a while there are %d, on terms %+v", c.many, got)
	}
}
