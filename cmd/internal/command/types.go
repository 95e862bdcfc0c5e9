package command

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/bytesize"
)

// Address is a flag with an address to listen on, as host:port.
type Address string

func (a *Address) String() string { return string(*a) }
func (a *Address) Type() string   { return "host:port" }

func (a *Address) Set(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("write host:port, or :8080 for all interfaces")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535")
	} else if n == 0 && port != "0" {
		return errors.New("write the port without leading zeros")
	}
	*a = Address(s)
	return nil
}

// PlainPath is a flag with a path that has only one spelling.
type PlainPath string

func (p *PlainPath) String() string { return string(*p) }
func (p *PlainPath) Type() string   { return "path" }

var plainPathSyntax = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

func (p *PlainPath) Set(s string) error {
	if s != "" && !plainPathSyntax.MatchString(s) {
		return errors.New(`write a path as in /v1/quota, of letters, digits, ".", "_", "~" and "-"`)
	}
	*p = PlainPath(s)
	return nil
}

// Size is a flag with a number of bytes.
type Size int64

func (z *Size) Type() string { return "size" }

func (z *Size) String() string { return bytesize.Text(int64(*z)) }

func (z *Size) Set(s string) error {
	n, err := bytesize.Parse(s)
	if err == nil {
		*z = Size(n)
	}
	return err
}

// Duration is a flag with a length of time that is not negative.
type Duration time.Duration

func (p *Duration) String() string { return time.Duration(*p).String() }
func (p *Duration) Type() string   { return "duration" }

func (p *Duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("write it as in 500ms, 10s or 1m30s")
	}
	*p = Duration(d)
	return nil
}

// Number is a flag with a bound of at least 1. It is 0 if the flag is not set.
type Number int

func (n *Number) String() string { return strconv.Itoa(int(*n)) }
func (n *Number) Type() string   { return "number" }

func (n *Number) Set(s string) error {
	v, err := strconv.ParseUint(s, 10, 31)
	if err != nil || v == 0 {
		return errors.New("write a whole number, at least 1")
	}
	*n = Number(v)
	return nil
}

// Level is a flag with the minimum level of log messages.
type Level struct{ slog.Level }

func (l *Level) String() string { return strings.ToLower(l.Level.String()) }
func (l *Level) Type() string   { return "level" }

func (l *Level) Set(s string) error {
	for _, known := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, known.String()) {
			l.Level = known
			return nil
		}
	}
	return fmt.Errorf("use debug, info, warn or error")
}

// Algorithm is a flag with the name of an algorithm.
type Algorithm sluice.Algorithm

func (a *Algorithm) String() string { return sluice.Algorithm(*a).String() }
func (a *Algorithm) Type() string   { return "algorithm" }

func (a *Algorithm) Set(s string) error {
	v, err := sluice.ParseAlgorithm(s)
	*a = Algorithm(v)
	return err
}
