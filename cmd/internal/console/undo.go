package console

import (
	"context"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

// putBack makes an item what it was, unless somebody has changed it since an act left it with an ETag.
func putBack(over *control.Control, id string, was any, etag string) undo {
	return func(ctx context.Context, who control.Caller) error {
		_, err := over.Put(ctx, who, id, was, control.Change{Match: etag})
		return err
	}
}

// recreate makes an item that an act has deleted.
func recreate(over *control.Control, was any) undo {
	return func(ctx context.Context, who control.Caller) error {
		_, err := over.Create(ctx, who, was, false)
		return err
	}
}

// removeMade deletes an override that an act has made, unless somebody has changed it since it had an ETag.
func removeMade(over *control.Control, id, etag string) undo {
	return func(ctx context.Context, who control.Caller) error {
		_, err := over.Delete(ctx, who, control.Overrides, id, control.Change{Match: etag})
		return err
	}
}

// blockAgain blocks a subject as an act has found it.
func blockAgain(over *control.Control, r control.BlockRequest) undo {
	return func(ctx context.Context, who control.Caller) error {
		_, err := over.Block(ctx, who, r, false)
		return err
	}
}

// unblockMade ends a block that an act has made.
func unblockMade(over *control.Control, t control.Target) undo {
	return func(ctx context.Context, who control.Caller) error {
		_, err := over.Unblock(ctx, who, t, false)
		return err
	}
}

// unblockAll takes blocks of a subject under several rules back, each unless somebody has changed it since.
func unblockAll(over *control.Control, key map[string]string, blocked []control.BlockedRule) undo {
	return func(ctx context.Context, who control.Caller) error {
		for _, b := range blocked {
			back := removeMade(over, b.Override, b.ETag)
			switch {
			case b.Override == "":
				back = unblockMade(over, control.Target{Rule: b.Rule, Key: key})
			case b.Before != nil:
				back = putBack(over, b.Override, b.Before, b.ETag)
			}
			if err := back(ctx, who); err != nil {
				return err
			}
		}
		return nil
	}
}

// restoreBefore takes the last change of the rules back, which has that entry in the audit log.
func restoreBefore(over *control.Control, entry int64) undo {
	return func(ctx context.Context, who control.Caller) error {
		_, err := over.Restore(ctx, who, entry, false)
		return err
	}
}
