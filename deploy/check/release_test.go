package check

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

const version = "v9.9.9"

// sh runs a script in a directory and returns its output.
func sh(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	c.Dir = dir
	c.Env = append(os.Environ(), append(env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GOWORK=", "GOFLAGS=")...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s\n%v\n%s%s", script, err, out, stderr.String())
	}
	return string(out)
}

// needs skips a test if a program is missing, or fails it if TEST_TOOLS demands all programs.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		missing(t, program+" is missing: make tools")
	}
}

// one returns the only file that matches a pattern.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	return files[0]
}

// TestRelease releases the tree for one platform, and checks each file of the release.
func TestRelease(t *testing.T) {
	repository, tree, downloads := t.TempDir(), t.TempDir(), t.TempDir()
	sh(t, "../..", "git init -q --bare "+repository+"; tree=$(git stash create); git push -q "+repository+" ${tree:-HEAD}:refs/tags/"+version)
	sh(t, tree, "git clone -q --branch "+version+" "+repository+" . && scripts/dist "+version+" linux/amd64 && mv dist/* "+downloads)

	t.Run("rebuild", func(t *testing.T) { rebuild(t, repository, downloads) })
	t.Run("sbom", func(t *testing.T) { sbom(t, downloads) })
	t.Run("deb", func(t *testing.T) { deb(t, downloads) })
	t.Run("rpm", func(t *testing.T) { rpm(t, downloads) })
	t.Run("chart", func(t *testing.T) {
		c, err := loader.Load(one(t, downloads, "sluice-chart-*.tgz"))
		if err != nil || c.Validate() != nil {
			t.Error(err, c)
		}
	})
}

// rebuild follows docs/verify.md, with a local repository in place of the public one.
func rebuild(t *testing.T, repository, downloads string) {
	_, page, _ := strings.Cut(string(read(t, "../../docs/verify.md")), "\n```bash\n")
	script, _, found := strings.Cut(page, "```\n")
	if !found {
		t.Fatal("docs/verify.md has no block of bash")
	}
	// Another machine has its modules in another directory.
	modules := filepath.Join(t.TempDir(), "modules")
	if err := os.Symlink(strings.TrimSpace(sh(t, ".", "go env GOMODCACHE")), modules); err != nil {
		t.Fatal(err)
	}
	out := sh(t, downloads, script, "version="+version, "GOMODCACHE="+modules, "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url."+repository+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/sluicehq/sluice")
	sums := strings.Count(string(read(t, filepath.Join(downloads, "SHA256SUMS"))), "\n")
	if same := strings.Count(out, ": OK\n"); same != sums || same < 5 {
		t.Errorf("%d of %d files are the same:\n%s", same, sums, out)
	}
}

// sbom compares the components with the modules in the binary, and validates the file against the schema of CycloneDX.
func sbom(t *testing.T, downloads string) {
	file := one(t, downloads, "sluice-*-linux-amd64.cdx.json")
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(read(t, file)), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != "github.com/sluicehq/sluice/cmd" || c.Version != version {
		t.Errorf("the SBOM is about %s %s", c.Name, c.Version)
	}
	components := map[string]string{}
	for _, c := range *bom.Components {
		components[c.Name] = c.Version
	}
	dir := t.TempDir()
	sh(t, dir, "tar -xzf "+one(t, downloads, "*.tar.gz")+" --strip-components=1")
	listed := sh(t, dir, "go version -m sluice")
	modules := map[string]string{"std": regexp.MustCompile(`^sluice: (\S+)`).FindStringSubmatch(listed)[1]}
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(listed, -1) {
		modules[m[1]] = m[2]
	}
	if len(modules) < 20 || !maps.Equal(components, modules) {
		t.Errorf("the SBOM lists\n%v\nand the binary has\n%v", components, modules)
	}
	sum := sha256.Sum256(read(t, filepath.Join(dir, "sluice")))
	if hash := hex.EncodeToString(sum[:]); !strings.Contains(string(read(t, file)), hash) {
		t.Errorf("the SBOM does not have the SHA-256 of the binary, %s", hash)
	}

	schema := schemaOf16(t)
	validate := func(text []byte) error {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return err
		}
		return schema.Validate(document)
	}
	if err := validate(read(t, file)); err != nil {
		t.Error(err)
	}
	if validate(bytes.Replace(read(t, file), []byte(`"type": "library"`), []byte(`"type": "book"`), 1)) == nil {
		t.Error("the schema accepts a component of an unknown type")
	}
}

// schemaOf16 returns the schema of CycloneDX 1.6 from the tests of its library.
func schemaOf16(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schemas := filepath.Join(strings.TrimSpace(sh(t, ".", "GOWORK=off go list -m -f '{{.Dir}}' github.com/CycloneDX/cyclonedx-go")), "schema")
	compiler := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schema.json"} {
		text := read(t, filepath.Join(schemas, strings.Replace(name, "jsf-0.82.schema.", "jsf-0.82.schemax.", 1)))
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource("http://cyclonedx.org/schema/"+name, schema); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// files has the files of a package. The value is the file of the tree that is copied, or "".
var files = map[string]string{
	"/etc/sluice/sluice.yaml":                          "deploy/systemd/sluice.yaml",
	"/etc/sluice/policy.yaml":                          "deploy/packages/policy.yaml",
	"/usr/lib/systemd/system/sluice.socket":            "deploy/systemd/sluice.socket",
	"/usr/lib/systemd/system/sluice.service":           "",
	"/usr/bin/sluice":                                  "",
	"/usr/share/bash-completion/completions/sluice":    "",
	"/usr/share/fish/vendor_completions.d/sluice.fish": "",
	"/usr/share/doc/sluice/licences.txt":               "cmd/internal/cli/licences.txt",
}

// installed compares the files below root with files and others, and runs the program.
func installed(t *testing.T, root string, others ...string) {
	t.Helper()
	var found []string
	for path := range strings.FieldsSeq(sh(t, root, "find etc usr -type f")) {
		found = append(found, "/"+path)
	}
	slices.Sort(found)
	want := slices.Sorted(slices.Values(append(others, slices.Collect(maps.Keys(files))...)))
	if !slices.Equal(found, want) {
		t.Errorf("the package installs\n%q\nwant\n%q", found, want)
	}
	for path, source := range files {
		if source != "" && !bytes.Equal(read(t, filepath.Join(root, path)), read(t, filepath.Join("../..", source))) {
			t.Errorf("%s is not a copy of %s", path, source)
		}
	}
	program := filepath.Join(root, "usr/bin/sluice")
	if out := sh(t, root, program+" version"); !strings.Contains(out, version) {
		t.Errorf("the installed program is %s", out)
	}
	sh(t, root, program+" validate etc/sluice/policy.yaml")
	units(t, root, program)
}

// units verifies the units of a package, with the path of the program below root.
func units(t *testing.T, root, program string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sluice.service", "sluice.socket"} {
		text := string(read(t, filepath.Join(root, "usr/lib/systemd/system", name)))
		if strings.HasSuffix(name, "service") && !strings.Contains(text, "ExecStart=/usr/bin/sluice serve") {
			t.Errorf("%s does not run /usr/bin/sluice:\n%s", name, text)
		}
		text = strings.ReplaceAll(text, "/usr/bin/sluice", program)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out := sh(t, dir, "systemd-analyze verify --man=no --recursive-errors=no ./sluice.service ./sluice.socket 2>&1"); out != "" {
		t.Error(out)
	}
}

// asRoot returns the beginning of a command that only root can run. In a user namespace, every user is root.
func asRoot(t *testing.T) string {
	t.Helper()
	if os.Getuid() == 0 {
		return ""
	}
	const namespace = "unshare --map-root-user "
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", namespace+"true").CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("only root can install a package, and user namespaces are not available: %v\n%s", err, out))
	}
	return namespace
}

// missing skips a test that cannot run here. If TEST_TOOLS is "all", as in CI, the test fails instead.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("TEST_TOOLS") == "all" {
		t.Fatal(why)
	}
	t.Skip("NOT VERIFIED: " + why)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// deb installs, removes and purges the package in a temporary directory.
func deb(t *testing.T, downloads string) {
	needs(t, "dpkg", "systemd-analyze")
	file, root := one(t, downloads, "sluice_*_amd64.deb"), t.TempDir()
	if got := sh(t, downloads, "dpkg-deb --show --showformat='${Package} ${Version} ${Architecture}' "+file); got != "sluice "+version[1:]+" amd64" {
		t.Errorf("the package is %s", got)
	}
	if got := sh(t, downloads, "dpkg-deb --info "+file+" conffiles"); got != "/etc/sluice/policy.yaml\n/etc/sluice/sluice.yaml\n" {
		t.Errorf("its conffiles are %q", got)
	}
	if got := sh(t, downloads, "dpkg-deb --contents "+file); strings.Count(got, " root/root ") != strings.Count(got, "\n") {
		t.Errorf("files do not belong to root:\n%s", got)
	}
	dpkg := asRoot(t) + "dpkg --root=" + root + " --force-not-root --force-script-chrootless --force-bad-path --log=/dev/null "
	sh(t, root, "mkdir -p var/lib/dpkg/{updates,info} && touch var/lib/dpkg/{status,available}; "+dpkg+"--install "+file)
	installed(t, root, "/usr/share/doc/sluice/copyright", "/usr/share/zsh/vendor-completions/_sluice")
	settings := filepath.Join(root, "etc/sluice/sluice.yaml")
	sh(t, root, "echo '# ours' >>"+settings+"; "+dpkg+"--install "+file)
	if !strings.HasSuffix(string(read(t, settings)), "# ours\n") {
		t.Error("an update overwrites the settings")
	}
	sh(t, root, dpkg+"--remove sluice")
	if exists(filepath.Join(root, "usr/bin/sluice")) || !exists(settings) {
		t.Error("after its removal the program stays, or the settings are gone")
	}
	sh(t, root, dpkg+"--purge sluice")
	if exists(settings) {
		t.Error("the settings stay after a purge")
	}
}

// rpm installs the package in a temporary directory.
func rpm(t *testing.T, downloads string) {
	needs(t, "rpm", "systemd-analyze")
	file, root := one(t, downloads, "sluice-*.x86_64.rpm"), t.TempDir()
	if got := sh(t, downloads, "rpm -qp --queryformat '%{NAME} %{VERSION} %{ARCH} %{LICENSE} %{BUILDHOST}' "+file); got != "sluice "+version[1:]+" x86_64 Apache-2.0 localhost" {
		t.Errorf("the package is %s", got)
	}
	if got := sh(t, downloads, "rpm -qpc "+file); got != "/etc/sluice/policy.yaml\n/etc/sluice/sluice.yaml\n" {
		t.Errorf("its configuration is %q", got)
	}
	sh(t, root, asRoot(t)+"rpm --root "+root+" --nodeps --noscripts -i "+file+" 2>&1")
	installed(t, root, "/usr/share/licenses/sluice/LICENSE", "/usr/share/zsh/site-functions/_sluice")
}

func TestFormula(t *testing.T) {
	needs(t, "ruby")
	sums, want := "", map[string]string{}
	for i, platform := range []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64", "windows-amd64"} {
		sum := fmt.Sprintf("%064x", i+1)
		name := "sluice-" + version + "-" + platform + ".tar.gz"
		sums += sum + "  " + name + "\n"
		if !strings.HasPrefix(platform, "windows") {
			want["https://github.com/sluicehq/sluice/releases/download/"+version+"/"+name] = sum
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums), 0o600); err != nil {
		t.Fatal(err)
	}
	formula := sh(t, "../..", "scripts/formula "+version+" "+dir+"/SHA256SUMS | tee "+dir+"/sluice.rb")
	sh(t, dir, "ruby -c sluice.rb")
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`url "(.*)"\n *sha256 "(.*)"`).FindAllStringSubmatch(formula, -1) {
		got[m[1]] = m[2]
	}
	if !maps.Equal(got, want) {
		t.Errorf("the formula has\n%v\nwant\n%v", got, want)
	}
	for _, line := range []string{`class Sluice < Formula`, `  version "` + version[1:] + `"`, `  license "Apache-2.0"`, `    bin.install "sluice"`} {
		if !strings.Contains(formula, line+"\n") {
			t.Errorf("%q is missing in\n%s", line, formula)
		}
	}
	if c := exec.CommandContext(t.Context(), "../../scripts/formula", version, os.DevNull); c.Run() == nil {
		t.Error("a formula was made without checksums")
	}
}
