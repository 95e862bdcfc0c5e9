package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policyfile"
)

// configFlag names the flag whose file gives values to all the others.
const configFlag = "config"

// applySettings fills in the flags that the command line left out: from the environment
// (SLUICE_LOG_LEVEL for --log-level), else from the configuration file (log_level), else
// the default stays. So every flag is a setting, and there is one list of them.
func applySettings(c *cobra.Command, _ []string) error {
	if err := fromEnvironment(c); err != nil {
		return err
	}
	flags := c.Flags()
	if config := flags.Lookup(configFlag); config != nil && config.Value.String() != "" {
		return fromFile(flags, config.Value.String())
	}
	return nil
}

// variable returns the environment variable of a flag.
func variable(flag string) string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func fromEnvironment(c *cobra.Command) error {
	var errs []error
	known := knownVariables(c.Root())
	names := slices.Sorted(maps.Values(known))
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, value, _ := strings.Cut(entry, "=")
		switch flag := known[name]; {
		case !strings.HasPrefix(name, "SLUICE_") || ofService(name):
		case flag == "":
			errs = append(errs, fmt.Errorf("environment: there is no setting %.60s: %s", name, meantVariable(name, names)))
		default:
			errs = append(errs, fromVariable(c.Flags().Lookup(flag), c.Flags(), name, value))
		}
	}
	return errors.Join(errs...)
}

// fromVariable sets a flag, unless it is one of another command or the command line has.
func fromVariable(f *pflag.Flag, flags *pflag.FlagSet, name, value string) error {
	if f == nil || f.Changed {
		return nil
	}
	if err := flags.Set(f.Name, value); err != nil {
		return fmt.Errorf("environment: %s=%.60q: %w", name, value, reason(err))
	}
	return from(flags, f.Name, name)
}

// knownVariables returns the flags of all commands by their variables.
func knownVariables(root *cobra.Command) map[string]string {
	known := make(map[string]string)
	for _, c := range root.Commands() {
		for _, name := range settingNames(c.LocalFlags()) {
			known[variable(name)] = name
		}
		if c.Flags().Lookup(configFlag) != nil {
			known[variable(configFlag)] = configFlag
		}
	}
	return known
}

// ofService reports whether Kubernetes sets the variable, in every container that there is
// beside a Service whose name begins with sluice.
func ofService(name string) bool {
	for i := range name {
		_, service := os.LookupEnv(name[:i] + "_SERVICE_HOST")
		if rest := name[i:]; service && (strings.HasPrefix(rest, "_SERVICE_") || rest == "_PORT" || strings.HasPrefix(rest, "_PORT_")) {
			return true
		}
	}
	return false
}

// meantVariable says what to write in place of a variable that there is not.
func meantVariable(name string, flags []string) string {
	if flag := meantFlag(strings.TrimPrefix(name, "SLUICE_"), flags); flag != "" {
		return fmt.Sprintf("did you mean %s?", variable(flag))
	}
	return "unset it, or see \"sluice serve --help\": SLUICE_LOG_LEVEL is --log-level"
}

// foreignFlags are settings by the names that others give them, without their hyphens.
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

// meantFlag returns which of flags was meant by a name that none has, or "".
func meantFlag(name string, flags []string) string {
	if f := foreignFlags[spelling.Fold(name)]; slices.Contains(flags, f) {
		return f
	}
	return spelling.Nearest(strings.ReplaceAll(name, "_", "-"), flags)
}

// fromFile reads a flat YAML document whose keys are the names of flags.
func fromFile(flags *pflag.FlagSet, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return unreadable(origin(flags, configFlag), err)
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&doc); errors.Is(err, io.EOF) {
		return nil // nothing but comments
	} else if err != nil {
		return errors.New(policyfile.YAMLProblem(path, data, err).String())
	}
	pairs := doc.Content[0]
	if pairs.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: this is not a list of settings: write one \"name: value\" a line", path, pairs.Line)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i < len(pairs.Content); i += 2 {
		key, value := pairs.Content[i], pairs.Content[i+1]
		place := fmt.Sprintf("%s:%d: %.60s", path, key.Line, key.Value)
		err := fromPair(flags, place, key, value)
		if seen[key.Value] {
			err = errors.New("it is there twice: remove one")
		}
		seen[key.Value] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", place, err))
		}
	}
	return errors.Join(errs...)
}

func fromPair(flags *pflag.FlagSet, place string, key, value *yaml.Node) error {
	f := flags.Lookup(strings.ReplaceAll(key.Value, "_", "-"))
	switch {
	case f == nil || f.Name == configFlag || f.Name == "help" || strings.Contains(key.Value, "-"):
		return noSetting(flags, key.Value)
	case value.Kind != yaml.ScalarNode:
		return errors.New("the value is not a single one: write name: value")
	case f.Changed: // the command line or the environment has said it already
		return nil
	}
	if err := flags.Set(f.Name, value.Value); err != nil {
		return reason(err)
	}
	return from(flags, f.Name, place)
}

// noSetting says what to write in place of a key of the file that is none.
func noSetting(flags *pflag.FlagSet, key string) error {
	names := settingNames(flags)
	switch meant := meantFlag(key, names); {
	case key == "rules" || key == "version":
		return errors.New("this is a policy, and not settings: give the file as --policy")
	case meant != "":
		return fmt.Errorf("there is no such setting: did you mean %q?", strings.ReplaceAll(meant, "-", "_"))
	}
	for i, name := range names {
		names[i] = strings.ReplaceAll(name, "-", "_")
	}
	return fmt.Errorf("there is no such setting: use one of %s", strings.Join(names, ", "))
}

// settingNames returns the flags that a file can set.
func settingNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != configFlag && f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	return names
}

// originNote is where a flag keeps where its value is from.
const originNote = "sluice_origin"

func from(flags *pflag.FlagSet, flag, place string) error {
	return flags.SetAnnotation(flag, originNote, []string{place})
}

// origin says where the value of a flag is from: --policy, SLUICE_POLICY, or a line of the
// configuration file.
func origin(flags *pflag.FlagSet, flag string) string {
	if note := flags.Lookup(flag).Annotations[originNote]; len(note) > 0 {
		return note[0]
	}
	return "--" + flag
}

// reason is what the flag's own type says is wrong, without the name of the flag.
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

// flagProblem says what is wrong with a flag of the command line, and what to write.
func flagProblem(c *cobra.Command, err error) error {
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

// flagsOnly refuses arguments that are no flags.
func flagsOnly(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case args[0] == "true" || args[0] == "false":
		return fmt.Errorf("%q stands alone: write it behind \"=\", as in --strict-ready=%s", args[0], args[0])
	}
	return fmt.Errorf("%.60q stands alone: write the flag before it, as in --policy FILE or --upstream URL", args[0])
}

// unreadable adds to an error about a file which setting names it, and what to do. It leaves
// alone what is wrong in the file.
func unreadable(setting string, err error) error {
	file, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	mend := "give another file"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		mend = "write its path from / or from where sluice is started"
	case errors.Is(err, fs.ErrPermission):
		mend = "let the user that sluice runs as read it"
	case errors.Is(err, syscall.EISDIR):
		mend = "name a file in it"
	}
	return fmt.Errorf("%s: %w: %s", setting, file, mend)
}
