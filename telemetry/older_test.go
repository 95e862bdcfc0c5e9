package telemetry

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// What instances of the version before post is read, so that none is missing while a fleet is upgraded.
func TestOlderPosts(t *testing.T) {
	t.Parallel()
	const at = 1_800_000_000
	said := appendHead(nil, &head{id: "a@1", name: "a"})
	said[1] = 1
	said = appendText(said, "") // all requests
	for _, step := range []int64{recentStep(at), longStep(at)} {
		said = binary.AppendUvarint(said, 1)
		said = binary.AppendUvarint(said, uint64(step))
		for n := range uint64(6) { // five outcomes, and what lacked something
			said = binary.AppendUvarint(said, n+1)
		}
	}
	all := newSums(at)
	if _, err := readPost(said, 1<<62, 1<<62, func(string) *sums { return all }); err != nil {
		t.Fatal(err)
	}
	for _, cells := range [][]column{all.recent.cells, all.days.cells} {
		if got := cells[len(cells)-1]; got != (column{1, 2, 3, 4, 5, 6, 0}) {
			t.Errorf("a post of the version before is read as %v", got)
		}
	}

	who := []byte{2, 0, 0, 0, 0, 0, 0, 1}
	who = appendText(who, "login")
	for range int(kinds) * Windows {
		who = binary.AppendUvarint(who, at*1000)
		who = append(who, 7, 0, 1) // in all; what others have at most; one subject
		who = appendText(append(who, 0), "login/maru")
		who = append(who, 7, 7, 0, 0, 1, 0, allHere)
	}
	var f fleetSubjects
	if err := f.add(who); err != nil {
		t.Fatal(err)
	}
	r := &Rule{Name: "login"}
	f.fill(r, new(policy.Policy), time.Unix(at, 0))
	for w := range Windows {
		if items := r.Refusals[w].Items; len(items) != 1 || items[0].Key != "login/maru" || items[0].Sent != "login/maru" || items[0].Count != 7 || items[0].Error != 0 {
			t.Errorf("subjects of the version before are read as %+v", items)
		}
	}
	for _, version := range []byte{0, 1, 4} {
		said, who = slices.Clone(said), slices.Clone(who)
		if said[1], who[0] = version*9, version; f.add(who) == nil {
			t.Errorf("subjects of version %d are read", version)
		} else if _, err := readPost(said, 0, 0, func(string) *sums { return nil }); err == nil {
			t.Errorf("a post of version %d is read", version*9)
		}
	}
}
