package pace

import (
	"reflect"
	"testing"

	"github.com/dunglas/httpsfv"
)

// FuzzStructured holds the reader of structured fields to another one.
func FuzzStructured(f *testing.F) {
	for _, s := range []string{
		`"per-ip";r=42;t=26, "user-day";r=4100;t=70848`,
		`limit=100, remaining=50, reset=5`, `100;w=60, 5000;w=86400`,
		`"a\"\\b";pk=:cHsdsRevieWsg==:;b;x=?0;d=@-1;e=1.5;t=*a/b:c`, `("a" b;c);d, ()`,
		`%"f%c3%bc"`, `a=(1 2);b, c;d=1`, `a, a;b=1`, "", " ", ",", `"a",`, `1.`, `-`, `-0`, "\x00", `"`, `(`, `0.1234`, `999999999999999`, `1000000000000000`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		mine, ok := parseList(s)
		theirs, err := httpsfv.UnmarshalList([]string{s})
		if ok != (err == nil) {
			t.Fatalf("list %q: ok is %v, and the other reader says %v", s, ok, err)
		}
		if ok {
			sameList(t, mine, theirs)
		}
		dictionary, ok := parseDictionary(s)
		other, err := httpsfv.UnmarshalDictionary([]string{s})
		if ok != (err == nil) {
			t.Fatalf("dictionary %q: ok is %v, and the other reader says %v", s, ok, err)
		}
		if ok {
			sameDictionary(t, dictionary, other)
		}
	})
}

func sameList(t *testing.T, mine []member, theirs httpsfv.List) {
	t.Helper()
	if len(mine) != len(theirs) {
		t.Fatalf("%d members, and the other reader finds %d", len(mine), len(theirs))
	}
	for i := range mine {
		same(t, &mine[i], theirs[i])
	}
}

func sameDictionary(t *testing.T, mine []member, theirs *httpsfv.Dictionary) {
	t.Helper()
	last := map[string]*member{}
	for i := range mine {
		last[mine[i].key] = &mine[i]
	}
	if len(last) != len(theirs.Names()) {
		t.Fatalf("%d keys, and the other reader finds %d", len(last), len(theirs.Names()))
	}
	for key, m := range last {
		other, found := theirs.Get(key)
		if !found {
			t.Fatalf("the other reader has no %q", key)
		}
		same(t, m, other)
	}
}

func same(t *testing.T, mine *member, theirs httpsfv.Member) {
	t.Helper()
	var params *httpsfv.Params
	switch other := theirs.(type) {
	case httpsfv.Item:
		params = other.Params
		if a, b := plain(mine.value), theirPlain(other.Value); !reflect.DeepEqual(a, b) {
			t.Fatalf("%#v, and the other reader finds %#v", a, b)
		}
	case httpsfv.InnerList:
		params = other.Params
		list, ok := mine.value.(inner)
		if !ok || len(list) != len(other.Items) {
			t.Fatalf("%#v, and the other reader finds %#v", mine.value, other.Items)
		}
		for i := range list {
			same(t, &list[i], other.Items[i])
		}
	}
	names := map[string]bool{}
	for _, p := range mine.parameters {
		names[p.key] = true
		other, found := params.Get(p.key)
		if a, b := plain(mine.parameter(p.key)), theirPlain(other); !found || !reflect.DeepEqual(a, b) {
			t.Fatalf("parameter %s is %#v, and the other reader finds %#v", p.key, a, b)
		}
	}
	if len(names) != len(params.Names()) {
		t.Fatalf("%d parameters, and the other reader finds %d", len(names), len(params.Names()))
	}
}

// plain makes a value comparable with theirPlain of the other reader's.
func plain(v any) any {
	switch v := v.(type) {
	case token:
		return "token " + string(v)
	case display:
		return "display " + string(v)
	case date:
		return []int64{int64(v)}
	case []byte:
		return append([]byte{}, v...)
	}
	return v
}

func theirPlain(v any) any {
	switch v := v.(type) {
	case httpsfv.Token:
		return "token " + string(v)
	case httpsfv.DisplayString:
		return "display " + string(v)
	case []byte:
		return append([]byte{}, v...)
	case interface{ Unix() int64 }:
		return []int64{v.Unix()}
	}
	return v
}
