package accesslog

import (
	"errors"
	"fmt"
	"strings"
)

// formats has the named formats. If several can read a sample, Detect returns the first, so the formats with the most
// values come first. For a line of another format, a format must return an error rather than wrong values.
var formats = []struct {
	name   string
	make   func(Options) *Format
	detect bool
}{
	{"caddy", caddy, true},
	{"traefik-json", traefikJSON, true},
	{"gcp", gcp, true},
	{"azure", azure, true},
	{"json", jsonFields, true},
	{"alb", alb, true},
	{"cloudfront", cloudFront, true},
	{"iis", iis, true},
	{"haproxy", haproxy, true},
	{"ingress-nginx", ingress, true},
	{"traefik", traefik, true},
	{"istio", istio, true},
	{"envoy", envoyDefault, true},
	{"vhost_combined", vhostCombined, true},
	{"combinedio", combinedIO, true},
	{"combined", combined, true},
	{"vhost_common", vhostCommon, true},
	{"common", common, true},
}

// Names returns the names that [Lookup] knows.
func Names() []string {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = formats[i].name
	}
	return names
}

// Lookup returns the format with the given name, such as "combined", or the format of a description: a log_format of
// nginx, which contains "$", or a LogFormat of Apache or a format string of Envoy, which contain "%".
func Lookup(name string, o Options) (*Format, error) {
	if err := checkFields(o.Fields); err != nil {
		return nil, err
	}
	for i := range formats {
		if formats[i].name == name {
			return formats[i].make(o), nil
		}
	}
	switch {
	case strings.Contains(name, "$"):
		return nginx(name, o)
	case envoyCommand.MatchString(name):
		return envoy(name, o)
	case strings.Contains(name, "%"):
		return apache(name, o)
	}
	return nil, fmt.Errorf("unknown log format %q: use one of %s, or the format in the server's configuration, such as '$remote_addr …' of nginx or '%%h …' of Apache",
		name, strings.Join(Names(), ", "))
}

// enough is the percentage of a sample's lines that a format must read.
const enough = 95

// Detect returns the format that reads at least 95 of 100 lines of a sample. If several do, it returns the one with
// the most values. If none does, it returns an error with the number of lines that each format reads.
func Detect(sample [][]byte, o Options) (*Format, error) {
	if err := checkFields(o.Fields); err != nil {
		return nil, err
	}
	var some []string // formats that read too few
	most := 0
	for i := range formats {
		if !formats[i].detect || len(o.Fields) > 0 && formats[i].name != "json" {
			continue // Options.Fields are for JSON lines only
		}
		f := formats[i].make(o)
		read, failed := f.try(sample)
		if read > 0 && read*100 >= enough*(read+failed) {
			return f.Narrow(sample), nil
		}
		if read > 0 {
			some = append(some, fmt.Sprintf("%s %d of %d", f.Name, read, read+failed))
		}
		most = max(most, read+failed)
	}
	if most == 0 {
		return nil, errors.New("no format is recognized: no line is a request; name the format with --format")
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("no format is recognized: none reads any of the first %d lines; pass the name of the format, or the server's log_format, with --format", most)
	}
	return nil, fmt.Errorf("no format is recognized: these formats read only some of the first lines: %s; pass the name of the format, or the server's log_format, with --format", strings.Join(some, ", "))
}

// try counts the lines that f can read, and those that it should read but cannot.
func (f *Format) try(sample [][]byte) (read, failed int) {
	for _, err := range f.Entries(sample) {
		switch {
		case err == nil:
			read++
		case !errors.Is(err, ErrSkip):
			failed++
		}
	}
	return read, failed
}
