package httplimit

import (
	"strings"
	"testing"
)

func TestNegotiate(t *testing.T) {
	tests := []struct {
		accept []string
		want   int
	}{
		{nil, problemJSON},
		{[]string{""}, problemJSON},
		{[]string{"*/*"}, problemJSON},
		{[]string{"application/problem+json"}, problemJSON},
		{[]string{"application/json"}, plainJSON},
		{[]string{"Application/JSON; charset=utf-8"}, plainJSON},
		{[]string{"text/plain"}, plainText},
		{[]string{"text/*"}, plainText},
		{[]string{"TEXT/*;q=0.001"}, plainText},
		{[]string{"application/*"}, problemJSON},
		{[]string{"text/html"}, problemJSON},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, problemJSON},
		{[]string{"application/json, text/plain, */*"}, plainJSON}, // named, so preferred
		{[]string{"application/json;q=0.5, text/plain;q=0.9"}, plainText},
		{[]string{"application/json;q=0.5", "text/plain;q=0.25"}, plainJSON},
		{[]string{"application/json;q=0, */*;q=0.1"}, problemJSON},
		{[]string{"application/problem+json;q=0, */*;q=0.1"}, plainJSON},
		{[]string{"application/*;q=0, */*"}, plainText},
		{[]string{"*/*;q=0"}, problemJSON},
		{[]string{"text/plain;q=0.2, application/*;q=0.1"}, plainText},
		{[]string{"text/plain;q=1.5"}, problemJSON},
		{[]string{"text/plain;q=0.1234"}, problemJSON},
		{[]string{"text/plain;q=-1"}, problemJSON},
		{[]string{"text/plain;q=NaN"}, problemJSON},
		{[]string{"text/plain;q=1.001"}, problemJSON},
		{[]string{"text/plain;q=1."}, plainText},
		{[]string{"text/plain;x=\";q=0"}, problemJSON},
		{[]string{",,;;==/*\x00\xff"}, problemJSON},
		{[]string{"/*", "*", "text", "text/", "plain"}, problemJSON},
		{[]string{strings.Repeat("a/b;q=0.5,", 100_000) + "text/plain"}, plainText},
	}
	for _, test := range tests {
		if got := negotiate(test.accept); got != test.want {
			t.Errorf("%.60q: %s, want %s", test.accept, offers[got], offers[test.want])
		}
	}
}
