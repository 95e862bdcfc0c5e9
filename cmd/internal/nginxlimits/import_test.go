package nginxlimits

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// importText imports a configuration and returns the policy as YAML.
func importText(text string) (string, error) {
	var files conf.Files
	if err := files.AddText("a.conf", text); err != nil {
		return "", err
	}
	im, err := Import(&files)
	if err != nil {
		return "", err
	}
	out, err := im.Text([]string{"a.conf"})
	return string(out), err
}

// The setup of a case is a configuration. A step is a text, and its result is whether the policy, written on one line,
// contains it.
func TestImport(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/import.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			text, err := importText(c.Setup)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := policyfile.Parse("policy.yaml", []byte(text)); err != nil {
				t.Error(err)
			}
			line := strings.Join(strings.Fields(text), " ")
			c.Play(t, func(step string) string {
				if strings.Contains(line, step) {
					return "yes"
				}
				return "no"
			})
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// The policy in docs/migrating.md is the one that its configuration is imported as.
func TestImportPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "migrating.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		_, text, _ := strings.Cut(string(page), "```"+language+"\n")
		text, _, _ = strings.Cut(text, "```")
		return text
	}
	want, err := policyfile.Decode("page", []byte(block("yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var files conf.Files
	if err := files.AddText("page", block("nginx")); err != nil {
		t.Fatal(err)
	}
	im, err := Import(&files)
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Untranslated) > 0 || !reflect.DeepEqual(im.Document, want) {
		t.Errorf("%+v\n%q\nwant\n%+v", im.Document, im.Untranslated, want)
	}
}

func TestImportMistakes(t *testing.T) {
	t.Parallel()
	for _, row := range testkit.SectionOf(t, "testdata/mistakes.txt", "mistakes").Rows(t) {
		if _, err := importText(row.In); err == nil || !strings.Contains(err.Error(), row.Want) {
			t.Errorf("%s: %v, want %s", row.In, err, row.Want)
		}
	}
}

// Includes of devices, pipes and directories are errors. A file that never ends is an error, too.
func TestIncludeEndless(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"/dev/zero", pipe, t.TempDir()} {
		if _, err := importText("\ninclude " + name + ";"); err == nil || !strings.HasPrefix(err.Error(), "a.conf:2: include: "+name+" is not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := new(conf.Files).Add("/dev/zero"); err == nil || !strings.Contains(err.Error(), "more than 32 MiB") {
		t.Error(err)
	}
}

// Import returns a valid policy, or an error with a line, for every text.
func FuzzImport(f *testing.F) {
	for _, name := range []string{"testdata/import.txt", "../../e2e/doors/testdata/imports.txt", "../../e2e/doors/testdata/imports_long.txt"} {
		for _, c := range testkit.Script(f, name) {
			f.Add(c.Setup)
		}
	}
	for _, row := range testkit.SectionOf(f, "testdata/mistakes.txt", "mistakes").Rows(f) {
		f.Add(row.In)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.Contains(text, "include") { // no file is read
			checkImport(t, text)
		}
	})
}

var hasLine = regexp.MustCompile(`^\S+:\d+: `)

// checkImport checks that a configuration gives a valid policy, or an error with a line. It reports whether the
// policy has rules.
func checkImport(t *testing.T, text string) bool {
	t.Helper()
	out, err := importText(text)
	if err != nil {
		if !hasLine.MatchString(err.Error()) {
			t.Errorf("an error without a line: %v\n%s", err, text)
		}
		return false
	}
	doc, err := policyfile.Decode("policy.yaml", []byte(out))
	if err == nil {
		_, err = policy.Compile(doc)
	}
	if err != nil {
		t.Errorf("%v\n%s\nof\n%s", err, out, text)
	}
	if strings.ContainsAny(out, "\r\x00\x1b") {
		t.Errorf("the policy has control characters: %q", out)
	}
	return len(doc.Rules) > 0
}

// Import returns valid policies for configurations of random directives.
func TestImportRandom(t *testing.T) {
	t.Parallel()
	rules := 0
	for seed := range uint64(1000) {
		if checkImport(t, (&maker{rand.New(rand.NewPCG(seed, 0))}).config()) {
			rules++
		}
	}
	if rules < 300 {
		t.Errorf("only %d of 1000 configurations have limits", rules)
	}
}

// maker generates random configurations.
type maker struct{ *rand.Rand }

func (m *maker) pick(all ...string) string { return all[m.IntN(len(all))] }

func (m *maker) config() string {
	var b strings.Builder
	for _, key := range []string{"$k0", "$k1", "$k2"} {
		if m.IntN(2) == 0 {
			b.WriteString("geo " + key + " { default " + m.value() + "; 10.0.0.0/8 " + m.value() + "; 192.0.2.1 " + m.value() + "; }\n")
			continue
		}
		source := m.pick("$k0", "$k1", "$remote_addr", "$request_method", "$uri", "$host", "$http_x_a", "$request_uri", "$geoip_city")
		b.WriteString("map " + source + " " + key + " { " + m.pick("default "+m.value()+";", "") + " " +
			m.pick(`""`, "0", "1", "GET", "POST", "/a", "~^/a/(b|c)", `~*\.php$`, "a.test", "192.0.2.9") + " " + m.value() + "; }\n")
	}
	for _, zone := range []string{"a", "b", "C%"} {
		b.WriteString("limit_req_zone " + m.key() + " zone=" + zone + ":1m rate=" + m.pick("1r/s", "100r/m", "2147483648r/s") + ";\n")
		b.WriteString("limit_conn_zone " + m.key() + " zone=" + zone + ":1m;\n")
	}
	m.limits(&b)
	for range m.IntN(4) {
		b.WriteString("server {\n" + m.pick("", "server_name a.test;", "server_name .b.test c.test;", "server_name ~x;", "server_name _;", "listen 80 default_server;") + "\n")
		m.limits(&b)
		m.locations(&b, 2)
		b.WriteString("}\n")
	}
	return b.String()
}

func (m *maker) value() string {
	return m.pick(`""`, "0", "1", "$binary_remote_addr", "$k0", "$k1", "$k2", "$uri", "$binary_remote_addr$uri")
}

func (m *maker) key() string {
	return m.pick("$k0", "$k1", "$k2", "$k0$k1", "$binary_remote_addr", "$server_name", "$binary_remote_addr$server_name", "$http_a$arg_b", "$cookie_c", "all", "${request_uri}x", "$http_", "$arg_[]", "$host")
}

func (m *maker) limits(b *strings.Builder) {
	if m.IntN(2) == 0 {
		b.WriteString("limit_req zone=" + m.pick("a", "b", "C%", "none") + m.pick("", " burst=5", " burst=5 nodelay", " burst=5 delay=2", " burst=2147483648") + ";\n")
	}
	if m.IntN(3) == 0 {
		b.WriteString("limit_conn " + m.pick("a", "b", "C%") + " " + m.pick("1", "65535") + ";\n")
	}
	if m.IntN(4) == 0 {
		b.WriteString(m.pick("limit_req_status 429;", "limit_conn_status 444;", "limit_req_dry_run on;", "limit_req_status 599;", "set_real_ip_from 10.0.0.0/8;") + "\n")
	}
}

func (m *maker) locations(b *strings.Builder, depth int) {
	for range m.IntN(4) {
		b.WriteString("location " + m.pick("", "= ", "^~ ", "~ ", "~* ") +
			m.pick("/", "/a", "/a/", "/a/b", "/a%20b", `"/a b"`, "/*", "/:x", "/{", `"/{x}"`, "//", "/.", "^/a$", "^/(a|b)(/|$)", "^/a/[^/]+/b", `\.php$`, "^/a/.*", "^/", "@x", "/x?y", "^/[ab]?c", "/\x1b") + " {\n")
		m.limits(b)
		b.WriteString(m.pick("", "", "return 200;", "internal;", "try_files a b;") + "\n")
		if depth > 0 {
			m.locations(b, depth-1)
		}
		b.WriteString("}\n")
	}
}
