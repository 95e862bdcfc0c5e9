package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// promtool runs promtool, which is in Debian's package prometheus.
func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), testkit.Program(t, "promtool"), args...)
	c.Stdin = strings.NewReader(input)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

const (
	alertsFile = "../../deploy/prometheus/alerts.yaml"
	panelsFile = "../../deploy/grafana/sluice.json"
)

// Alerts fire when they should, and only then.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "config", "--syntax-only", "../../deploy/docker/prometheus.yaml")
	promtool(t, "", "check", "rules", alertsFile)
	promtool(t, "", "test", "rules", "../../deploy/prometheus/alerts_test.yaml")
}

func readDashboard(t *testing.T) (d any) {
	t.Helper()
	text, err := os.ReadFile(panelsFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// asked returns all queries of a dashboard.
func asked(d any) (all []string) {
	lists := [][]any{at[[]any](d, "annotations.list")}
	for _, p := range at[[]any](d, "panels") {
		lists = append(lists, at[[]any](p, "targets"))
	}
	for _, one := range slices.Concat(lists...) {
		if expr := at[string](one, "expr"); expr != "" {
			all = append(all, expr)
		}
	}
	return all
}

// The dashboard has ten rows in order, panels that do not overlap, one data source that the user can choose, and
// queries that Prometheus can parse.
func TestPanels(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if at[string](d, "title") != "Sluice" || at[string](d, "uid") != "sluice" || at[float64](d, "schemaVersion") < 36 || at[string](d, "templating.list.0.type") != "datasource" {
		t.Error("the dashboard has another name or source")
	}
	ids, taken, rows := map[float64]string{}, map[[2]int]string{}, 0
	for _, p := range at[[]any](d, "panels") {
		id, kind, title, grid := at[float64](p, "id"), at[string](p, "type"), at[string](p, "title"), at[any](p, "gridPos")
		if other, twice := ids[id]; twice {
			t.Errorf("%q and %q have the number %v", other, title, id)
		}
		ids[id] = title
		for x := range int(at[float64](grid, "w")) {
			for y := range int(at[float64](grid, "h")) {
				cell := [2]int{int(at[float64](grid, "x")) + x, int(at[float64](grid, "y")) + y}
				if other, twice := taken[cell]; twice || cell[0] >= 24 {
					t.Fatalf("%q overlaps %q", title, other)
				}
				taken[cell] = title
			}
		}
		if kind == "row" {
			if rows++; !strings.HasPrefix(title, fmt.Sprint(rows, " · ")) {
				t.Errorf("row %d is %q", rows, title)
			}
		} else if kind != "text" && (at[[]any](p, "targets") == nil || at[string](p, "datasource.uid") != "${datasource}") {
			t.Errorf("%q has no query, or does not use the chosen data source", title)
		}
	}
	if rows != 10 {
		t.Errorf("%d rows, want 10", rows)
	}

	variables := regexp.MustCompile(`\$(job|instance|rule)\b`)
	rules := []map[string]string{}
	for i, expr := range asked(d) {
		expr = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(expr)
		if expr = variables.ReplaceAllString(expr, ".*"); strings.Contains(expr, "$") {
			t.Errorf("an unknown variable: %s", expr)
		}
		rules = append(rules, map[string]string{"record": fmt.Sprint("panel:", i), "expr": expr})
	}
	file, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", testkit.File(t, "panels.json", string(file)))
}
