package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/policyfile"
)

// configFlag names the flag of the configuration file.
const configFlag = "config"

// TokenVariable is the environment variable with the token for the admin API. It is not a flag, because
// every user of the machine can read command lines.
const TokenVariable = "SLUICE_TOKEN"

// AddConfigFlag adds --config, a file that sets the other flags.
func AddConfigFlag(f *pflag.FlagSet) { f.String(configFlag, "", "YAML `file` with settings") }

// ApplySettings sets the flags that the command line omits: from the environment (SLUICE_LOG_LEVEL for
// --log-level), or else from the configuration file (log_level). So every flag is also a variable and a setting of
// the file. It is the PreRunE of every command with settings.
func ApplySettings(c *cobra.Command, _ []string) error {
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
		case !strings.HasPrefix(name, "SLUICE_") || name == TokenVariable || ofService(name):
		case flag == "":
			errs = append(errs, fmt.Errorf("environment: unknown setting %.60s: %s", name, meantVariable(name, names)))
		default:
			errs = append(errs, fromVariable(c.Flags().Lookup(flag), c.Flags(), name, value))
		}
	}
	return errors.Join(errs...)
}

// fromVariable sets a flag from a variable, unless the flag belongs to another command or the command line sets it.
func fromVariable(f *pflag.Flag, flags *pflag.FlagSet, name, value string) error {
	if f == nil || f.Changed {
		return nil
	}
	if err := flags.Set(f.Name, value); err != nil {
		return fmt.Errorf("environment: %s=%.60q: %w", name, value, reason(err))
	}
	return setOrigin(flags, f.Name, name)
}

// knownVariables returns the flags of all commands by the names of their variables.
func knownVariables(root *cobra.Command) map[string]string {
	known := make(map[string]string)
	for _, c := range root.Commands() {
		maps.Copy(known, knownVariables(c))
		for _, name := range settingNames(c.LocalFlags()) {
			known[variable(name)] = name
		}
		if c.Flags().Lookup(configFlag) != nil {
			known[variable(configFlag)] = configFlag
		}
	}
	return known
}

// ofService reports whether Kubernetes sets the variable. If the name of a Service starts with sluice, Kubernetes
// sets such variables in every container of the namespace.
func ofService(name string) bool {
	for i := range name {
		_, service := os.LookupEnv(name[:i] + "_SERVICE_HOST")
		if rest := name[i:]; service && (strings.HasPrefix(rest, "_SERVICE_") || rest == "_PORT" || strings.HasPrefix(rest, "_PORT_")) {
			return true
		}
	}
	return false
}

// meantVariable returns advice for an unknown variable.
func meantVariable(name string, flags []string) string {
	if flag := meantFlag(strings.TrimPrefix(name, "SLUICE_"), flags); flag != "" {
		return fmt.Sprintf("did you mean %s?", variable(flag))
	}
	return "unset it, or see \"sluice serve --help\": SLUICE_LOG_LEVEL is --log-level"
}

// fromFile reads a flat YAML document with the names of flags as keys.
func fromFile(flags *pflag.FlagSet, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return Unreadable(Origin(flags, configFlag), err)
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&doc); errors.Is(err, io.EOF) {
		return nil // the file has only comments
	} else if err != nil {
		return errors.New(policyfile.YAMLProblem(path, data, err).String())
	}
	pairs := doc.Content[0]
	if pairs.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: this is not a list of settings: write one \"name: value\" per line", path, pairs.Line)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i < len(pairs.Content); i += 2 {
		key, value := pairs.Content[i], pairs.Content[i+1]
		origin := fmt.Sprintf("%s:%d: %.60s", path, key.Line, key.Value)
		err := fromPair(flags, origin, key, value)
		if seen[key.Value] {
			err = errors.New("set twice: remove one")
		}
		seen[key.Value] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", origin, err))
		}
	}
	return errors.Join(errs...)
}

func fromPair(flags *pflag.FlagSet, origin string, key, value *yaml.Node) error {
	f := flags.Lookup(strings.ReplaceAll(key.Value, "_", "-"))
	switch {
	case key.Value == "rules" && value.Kind != yaml.ScalarNode, f == nil || f.Name == configFlag || f.Name == "help" || strings.Contains(key.Value, "-"):
		return unknownSetting(flags, key.Value)
	case value.Kind != yaml.ScalarNode:
		return errors.New("the value must be a single word or number: write name: value")
	case f.Changed: // the command line or the environment sets it
		return nil
	}
	if err := flags.Set(f.Name, value.Value); err != nil {
		return reason(err)
	}
	return setOrigin(flags, f.Name, origin)
}

// unknownSetting returns the error for an unknown key of the file.
func unknownSetting(flags *pflag.FlagSet, key string) error {
	names := settingNames(flags)
	switch meant := meantFlag(key, names); {
	case key == "rules" || key == "version":
		return errors.New("this file is a policy, not a list of settings: pass it with --policy")
	case meant != "":
		return fmt.Errorf("unknown setting: did you mean %q?", strings.ReplaceAll(meant, "-", "_"))
	}
	return errors.New(`unknown setting: "sluice serve --help" names them all, as flags`)
}

// settingNames returns the flags that the file can set.
func settingNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != configFlag && f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	return names
}

// originNote is the annotation of a flag with the origin of its value.
const originNote = "sluice_origin"

func setOrigin(flags *pflag.FlagSet, flag, origin string) error {
	return flags.SetAnnotation(flag, originNote, []string{origin})
}

// Origin names the source of a flag's value: --policy, SLUICE_POLICY, or a line of the configuration file.
func Origin(flags *pflag.FlagSet, flag string) string {
	if note := flags.Lookup(flag).Annotations[originNote]; len(note) > 0 {
		return note[0]
	}
	return "--" + flag
}

// FromCommandLine returns the first of the named flags that the command line sets, or "".
func FromCommandLine(flags *pflag.FlagSet, names ...string) string {
	for _, name := range names {
		if flags.Changed(name) && Origin(flags, name) == "--"+name {
			return name
		}
	}
	return ""
}
