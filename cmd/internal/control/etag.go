package control

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// Quoted returns the ETag of a version.
func Quoted(version string) string { return fmt.Sprintf("%q", version) }

// ETags returns the entity tags in a field such as If-Match.
func ETags(field string) (all []string) {
	for tag := range strings.SplitSeq(field, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			all = append(all, tag)
		}
	}
	return all
}

// versionIn returns the version of a row that an ETag contains, if any.
func versionIn(etag string) (source.Match, bool) {
	n, err := strconv.ParseInt(strings.Trim(etag, `"`), 10, 64)
	return source.Match(n), err == nil && n > 0 && etag == Quoted(strconv.FormatInt(n, 10))
}
