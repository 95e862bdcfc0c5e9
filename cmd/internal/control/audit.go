package control

import (
	"context"
	"strconv"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// AuditPage is a page of the audit log, the newest entry first.
type AuditPage struct {
	Items []source.Entry `json:"items"`
	Next  string         `json:"next,omitempty"`
}

// Audit returns a page of the audit log. The page has up to limit entries, or up to 100 if limit is 0. The parameter
// cursor is the field Next of the previous page, or "" for the first page.
func (c *Control) Audit(ctx context.Context, who Caller, cursor string, limit int) (*AuditPage, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	after, n, err := position(cursor, limit)
	if err != nil {
		return nil, err
	}
	if c.policy.database == nil {
		return nil, noDatabase()
	}
	before := int64(0)
	if after != "" {
		if before, err = strconv.ParseInt(after, 10, 64); err != nil || before < 1 {
			return nil, badCursor()
		}
	}
	items, err := c.policy.database.Audit(ctx, before, n)
	if err != nil {
		return nil, err
	}
	page := &AuditPage{Items: append([]source.Entry{}, items...)}
	v := c.veilFor(who)
	for i := range page.Items {
		page.Items[i] = v.entry(page.Items[i])
	}
	if len(items) == n {
		page.Next = cursorBehind(strconv.FormatInt(items[n-1].ID, 10))
	}
	return page, nil
}
