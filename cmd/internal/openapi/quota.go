package openapi

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// quotas returns the limits in x-google-management by metric.
func (d *Document) quotas() map[string]*limit {
	all := map[string]*limit{}
	for _, name := range []string{"x-google-management", "x-google-api-management"} {
		quota := d.field(d.field(d.root, name), "quota")
		limits := cmp.Or(d.field(quota, "limits"), quota)
		for _, of := range d.items(limits) {
			d.addQuota(all, name, of)
		}
		for _, of := range pairs(limits) {
			d.addQuota(all, name, d.resolve(of, 0))
		}
	}
	return all
}

// addQuota adds the limit of a metric.
func (d *Document) addQuota(all map[string]*limit, extension string, of *yaml.Node) {
	metric := text(d.field(of, "metric"))
	if metric == "" {
		return
	}
	values := d.field(of, "values")
	values = cmp.Or(d.field(values, "STANDARD"), values)
	_, unit, _ := strings.Cut(text(d.field(of, "unit")), "/")
	unit, _, _ = strings.Cut(unit, "/")
	l := all[metric]
	if l == nil {
		l = &limit{extension: extension}
		all[metric] = l
	}
	p := period(1, cmp.Or(unit, "min"))
	if v, ok := whole(values); ok && p != "" {
		l.texts = append(l.texts, fmt.Sprintf("%d/%s", v, p))
	} else {
		l.note("the limit of the metric %q has no number with a period", metric)
	}
}

// costs returns the cost of an operation by metric.
func (d *Document) costs(o *Operation) map[string]int64 {
	quota := d.field(o.node, "x-google-quota")
	costs := cmp.Or(d.field(quota, "metricCosts"), quota)
	all := map[string]int64{}
	for metric, cost := range pairs(costs) {
		if v, ok := whole(d.resolve(cost, 0)); ok {
			all[metric.Value] = v
		}
	}
	return all
}
