package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/internal/spelling"
)

// foreignFlags maps the names that settings have in other programs, without hyphens, to flags of sluice.
var foreignFlags = map[string]string{
	"addr": "proxy", "address": "proxy", "bind": "proxy", "listen": "proxy", "listenaddress": "proxy", "port": "proxy",
	"backend": "upstream", "origin": "upstream", "proxypass": "upstream", "target": "upstream", "upstreamurl": "upstream",
	"f": "policy", "file": "policy", "limits": "policy", "p": "policy", "policyfile": "policy", "rules": "policy",
	"c": configFlag, "configfile": configFlag, "conf": configFlag,
	"redis": "store", "redisurl": "store", "valkey": "store", "storage": "store", "storeurl": "store",
	"debug": "log-level", "level": "log-level", "v": "log-level", "verbose": "log-level",
	"metrics": "admin", "metricsaddr": "admin", "adminaddr": "admin", "adminport": "admin", "health": "admin",
	"shutdowntimeout": "drain-timeout", "graceperiod": "drain-timeout", "prestop": "drain-delay", "shutdowndelay": "drain-delay",
	"cachesize": "memory-size", "replicas": "instances", "maxheadersize": "max-header", "maxbodysize": "max-body",
}

// meantFlag returns the flag that an unknown name probably means, or "".
func meantFlag(name string, flags []string) string {
	if f := foreignFlags[spelling.Fold(name)]; slices.Contains(flags, f) {
		return f
	}
	return spelling.Nearest(strings.ReplaceAll(name, "_", "-"), flags)
}

// reason returns the error that the flag's type returned, without the name of the flag.
func reason(err error) error {
	if invalid := new(pflag.InvalidValueError); errors.As(err, &invalid) {
		if strings.HasPrefix(invalid.GetFlag().Value.Type(), "bool") {
			return errors.New("write true or false")
		}
		if invalid.GetFlag().Value.Type() == "int" {
			return errors.New("write a whole number")
		}
		return invalid.Unwrap()
	}
	return err
}

// flagError returns the error for a wrong flag of the command line, with advice.
func flagError(c *cobra.Command, err error) error {
	invalid, bare, unknown := new(pflag.InvalidValueError), new(pflag.ValueRequiredError), new(pflag.NotExistError)
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s %.60q: %w", invalid.GetFlag().Name, invalid.GetValue(), reason(err))
	case errors.As(err, &bare):
		f := bare.GetFlag()
		kind, _ := pflag.UnquoteUsage(f)
		return fmt.Errorf("--%s: its value is missing: write --%s %s", f.Name, f.Name, strings.ToUpper(kind))
	case !errors.As(err, &unknown):
		return err
	}
	dashes := "--"
	if unknown.GetSpecifiedShortnames() != "" {
		dashes = "-"
	}
	name, _, _ := strings.Cut(cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()), "=")
	names := settingNames(c.Flags())
	if c.Flags().Lookup(configFlag) != nil {
		names = append(names, configFlag)
	}
	if meant := meantFlag(name, names); meant != "" {
		return fmt.Errorf("unknown flag %s%.60s: did you mean --%s?", dashes, name, meant)
	}
	return fmt.Errorf("unknown flag %s%.60s: the usage is %q", dashes, name, c.UseLine())
}

// FlagsOnly is the Args of a command that takes only flags.
func FlagsOnly(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case args[0] == "true" || args[0] == "false":
		return fmt.Errorf("unexpected argument %q: write it after \"=\", as in --strict-ready=%s", args[0], args[0])
	}
	return fmt.Errorf("unexpected argument %.60q: write the flag before it, as in --policy FILE or --upstream URL", args[0])
}

// Unreadable returns an error about opening a file with the setting that names the file, and with advice. It
// returns errors about the content of the file unchanged.
func Unreadable(setting string, err error) error {
	file, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	hint := "give another file"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "write an absolute path, or one relative to the directory where sluice is started"
	case errors.Is(err, fs.ErrPermission):
		hint = "let sluice's user read the file"
	case errors.Is(err, syscall.EISDIR):
		hint = "name a file in it"
	}
	return fmt.Errorf("%s: %w: %s", setting, file, hint)
}

// Args returns the Args of a command. The number of arguments must be between the bounds least and most; if most is
// 0, there is no upper bound. For other numbers, the error has the text message.
func Args(least, most int, message string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return errors.New(message)
		}
		return nil
	}
}
