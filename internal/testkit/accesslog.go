package testkit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"strings"
	"testing"
	"time"
)

// Access is a request of [AccessLog].
type Access struct {
	At                      time.Time // in whole seconds
	Address, Method, Target string
}

//go:embed testdata/access.log.gz
var accessLog []byte

// AccessLog returns 10,000 requests to a public web site, in the order of their log, which is nearly the order of
// their times: see testdata/README.md.
func AccessLog(t testing.TB) (all []Access) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(accessLog))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 4 {
			t.Fatalf("not a line of four fields: %q", lines.Text())
		}
		at, err := time.Parse("02/Jan/2006:15:04:05", fields[0])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Access{at, fields[1], fields[2], fields[3]})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
