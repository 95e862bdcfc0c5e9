package console

import "github.com/sluicehq/sluice/cmd/internal/control"

// undo undoes an act for its caller. If the act changed the database, it fails if another caller has changed the item
// since.
type undo func(*call) error

// putBack restores the state of an item before an act. It fails if the item no longer has the ETag that the act
// gave it.
func putBack(id string, was any, etag string) undo {
	return func(c *call) error {
		_, err := c.s.Control.Put(c.Context(), c.caller, id, was, control.Change{Match: etag})
		return err
	}
}

// recreate restores an item that an act has deleted.
func recreate(was any) undo {
	return func(c *call) error {
		_, err := c.s.Control.Create(c.Context(), c.caller, was, false)
		return err
	}
}

// removeMade deletes an override that an act has created. It fails if the override no longer has the ETag that the
// act gave it.
func removeMade(id, etag string) undo {
	return func(c *call) error {
		_, err := c.s.Control.Delete(c.Context(), c.caller, control.Overrides, id, control.Change{Match: etag})
		return err
	}
}

// blockAgain restores the block from before an act.
func blockAgain(r control.BlockRequest) undo {
	return func(c *call) error {
		_, err := c.s.Control.Block(c.Context(), c.caller, r, false)
		return err
	}
}

// unblockMade ends the block that an act has made.
func unblockMade(t control.Target) undo {
	return func(c *call) error {
		_, err := c.s.Control.Unblock(c.Context(), c.caller, t, false)
		return err
	}
}

// unblockAll ends the blocks that an act made for a subject under several rules. It fails at the first block that
// another caller has changed since.
func unblockAll(key map[string]string, blocked []control.BlockedRule) undo {
	return func(c *call) error {
		for _, b := range blocked {
			back := removeMade(b.Override, b.ETag)
			switch {
			case b.Override == "":
				back = unblockMade(control.Target{Rule: b.Rule, Key: key})
			case b.Before != nil:
				back = putBack(b.Override, b.Before, b.ETag)
			}
			if err := back(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// restoreBefore undoes the last change of the rules. The parameter entry is the ID of the change in the audit log.
func restoreBefore(entry int64) undo {
	return func(c *call) error {
		_, err := c.s.Control.Restore(c.Context(), c.caller, entry, false)
		return err
	}
}
