package accesslog

import (
	"errors"
	"fmt"
	"strings"
)

// formats has the formats with a name. If several can read a sample, Detect takes the first, so those that tell
// most come first. A format must return an error for a line of another format, rather than read it badly.
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

// Names returns the names that [Lookup] takes.
func Names() []string {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = formats[i].name
	}
	return names
}

// Lookup returns the format with a name, such as "combined", or the format of a description: a log_format of nginx,
// which contains "$", or a LogFormat of Apache or a format string of Envoy, which contain "%".
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
	return nil, fmt.Errorf("there is no log format %q: it is one of %s, or as the server's configuration has it, such as '$remote_addr …' of nginx or '%%h …' of Apache",
		name, strings.Join(Names(), ", "))
}

// enough is how many of 100 lines of a sample a format must read.
const enough = 95

// Detect returns the format that reads at least 95 of 100 of the lines of a sample, the one with the most fields if
// several do, or an error with the number of lines that each format reads.
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
		return nil, fmt.Errorf("no format is recognized: none reads any of the first %d lines; name it with --format, or give the server's log_format there", most)
	}
	return nil, fmt.Errorf("no format is recognized: of the first lines %s are read; name it with --format, or give the server's log_format there", strings.Join(some, ", "))
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
