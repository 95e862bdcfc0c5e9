package source

// Difference is a row that differs between two Contents.
type Difference struct {
	Kind, Target  string // as in an [Entry]
	Before, After string // the row as JSON, or "" if it is missing
}

// Diff returns the differences between two policies: settings, rules, tiers, subjects and overrides. Each kind has
// the order of the policy after the change, followed by the deleted rows.
func Diff(before, after *Contents) []Difference {
	all := diff(settingsKind, settingsRows(before), settingsRows(after))
	all = append(all, diff(ruleKind, before.Rules, after.Rules)...)
	all = append(all, diff(tierKind, before.Tiers, after.Tiers)...)
	all = append(all, diff(subjectKind, before.Subjects, after.Subjects)...)
	return append(all, diff(overrideKind, before.Overrides, after.Overrides)...)
}

func settingsRows(c *Contents) []SettingsRow {
	if c.Settings.Version == 0 {
		return nil
	}
	return []SettingsRow{c.Settings}
}

func diff[R any](k *kind[R], before, after []R) (all []Difference) {
	old := make(map[string]string, len(before))
	for i := range before {
		old[k.target(&before[i])] = k.content(&before[i])
	}
	for i := range after {
		target, is := k.target(&after[i]), k.content(&after[i])
		if was, known := old[target]; !known || was != is {
			all = append(all, Difference{k.name, target, was, is})
		}
		delete(old, target)
	}
	for i := range before {
		target := k.target(&before[i])
		if was, gone := old[target]; gone {
			all = append(all, Difference{k.name, target, was, ""})
		}
	}
	return all
}

// content returns a row as JSON, without the time and the actor of the last change.
func (k *kind[R]) content(r *R) string {
	row := *r
	*k.meta(&row) = Meta{}
	text, _ := encode(row)
	return text
}
