package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// promtool runs it, from Debian's package prometheus.
func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), testkit.Program(t, "promtool"), args...)
	c.Stdin = strings.NewReader(input)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

const (
	alertsFile = "../deploy/prometheus/alerts.yaml"
	panelsFile = "../deploy/grafana/sluice.json"
)

// Alerts sound when they should, and not when not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "config", "--syntax-only", "../deploy/docker/prometheus.yaml")
	promtool(t, "", "check", "rules", alertsFile)
	promtool(t, "", "test", "rules", "../deploy/prometheus/alerts_test.yaml")
}

// dashboard is what is looked at of one of Grafana.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []panel
	Annotations   struct{ List []struct{ Name, Expr string } }
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Datasource  struct{ Type, UID string }
	Targets     []struct {
		Expr, RefID string
		Datasource  struct{ UID string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(panelsFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// exprs returns all that is asked of Prometheus.
func (d *dashboard) exprs() (all []string) {
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			all = append(all, a.Expr)
		}
	}
	return all
}

// The dashboard has the ten questions in their order, panels that do not overlap, one data source that
// can be chosen, and queries that Prometheus can read.
func TestPanels(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if d.Title != "Sluice" || d.UID != "sluice" || d.SchemaVersion < 36 || d.Templating.List[0].Type != "datasource" {
		t.Errorf("%+v", d)
	}
	ids, taken, rows := map[int]string{}, map[[2]int]string{}, 0
	for _, p := range d.Panels {
		if other, twice := ids[p.ID]; twice {
			t.Errorf("%q and %q have the number %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, twice := taken[[2]int{x, y}]; twice || x >= 24 {
					t.Fatalf("%q is where %q is", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			if rows++; !strings.HasPrefix(p.Title, fmt.Sprint(rows, " · ")) {
				t.Errorf("row %d is %q", rows, p.Title)
			}
		} else if p.Type != "text" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("%q asks nothing, or something else than the chosen source", p.Title)
		}
	}
	if rows != 10 {
		t.Errorf("%d questions of ten", rows)
	}

	variables := regexp.MustCompile(`\$(job|instance|rule)\b`)
	rules := []map[string]string{}
	for i, expr := range d.exprs() {
		expr = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(expr)
		if expr = variables.ReplaceAllString(expr, ".*"); strings.Contains(expr, "$") {
			t.Errorf("a variable that is not there: %s", expr)
		}
		rules = append(rules, map[string]string{"record": fmt.Sprint("panel:", i), "expr": expr})
	}
	file, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", testkit.File(t, "panels.json", string(file)))
}
