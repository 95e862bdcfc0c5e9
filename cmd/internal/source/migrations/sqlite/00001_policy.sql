-- +goose Up

-- Every change increases value. Triggers set the version of the changed kind and of each changed row
-- to value, also for changes that are made by SQL.
CREATE TABLE sluice_version (
  id INTEGER PRIMARY KEY DEFAULT 1 CHECK (id = 1),
  value INTEGER NOT NULL DEFAULT 0,
  settings INTEGER NOT NULL DEFAULT 0,
  rules INTEGER NOT NULL DEFAULT 0,
  tiers INTEGER NOT NULL DEFAULT 0,
  subjects INTEGER NOT NULL DEFAULT 0,
  overrides INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0
);
INSERT INTO sluice_version (id) VALUES (1);

-- The settings of a policy: everything except rules, tiers, subjects and overrides. At most one row.
CREATE TABLE sluice_settings (
  id INTEGER PRIMARY KEY DEFAULT 1 CHECK (id = 1),
  document TEXT NOT NULL CHECK (json_valid(document)),
  version INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL DEFAULT '',
  updated_by TEXT NOT NULL DEFAULT ''
);

-- Rules by name. The document is that of a policy file. The columns after the document are derived from
-- it, for searches: the parts of the key, the count and the window of a single limit with a window in
-- seconds, and the names of the tiers for which the rule has limits.
CREATE TABLE sluice_rules (
  name TEXT NOT NULL PRIMARY KEY,
  position INTEGER NOT NULL DEFAULT 0,
  enabled BOOLEAN NOT NULL DEFAULT TRUE,
  document TEXT NOT NULL CHECK (json_valid(document)),
  key_pattern TEXT NOT NULL DEFAULT '',
  requests_limit INTEGER,
  window_seconds REAL,
  tiers TEXT NOT NULL DEFAULT '',
  version INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL DEFAULT '',
  updated_by TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sluice_rules_version ON sluice_rules (version);

-- The limits of tiers, by the names of rules.
CREATE TABLE sluice_tiers (
  name TEXT NOT NULL PRIMARY KEY,
  description TEXT NOT NULL DEFAULT '',
  limits TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(limits)),
  version INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL DEFAULT '',
  updated_by TEXT NOT NULL DEFAULT ''
);

-- The tiers of subjects. A subject is a value of the key part that tiers.subject names.
CREATE TABLE sluice_subjects (
  subject TEXT NOT NULL PRIMARY KEY,
  tier TEXT NOT NULL,
  expires_at TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '',
  made_by TEXT NOT NULL DEFAULT '',
  version INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL DEFAULT '',
  updated_by TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sluice_subjects_version ON sluice_subjects (version);

-- Overrides: limits, a block or an exemption for one subject of a rule. key is an object with the key
-- parts and their values, and limits is a list. The columns entity_type and entity_id are derived from
-- key; requests_limit and window_seconds are derived from limits.
CREATE TABLE sluice_overrides (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  rule TEXT NOT NULL,
  key TEXT NOT NULL CHECK (json_valid(key)),
  entity_type TEXT NOT NULL DEFAULT '',
  entity_id TEXT NOT NULL DEFAULT '',
  limits TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(limits)),
  block BOOLEAN NOT NULL DEFAULT FALSE,
  exempt BOOLEAN NOT NULL DEFAULT FALSE,
  requests_limit INTEGER,
  window_seconds REAL,
  expires_at TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '',
  made_by TEXT NOT NULL DEFAULT '',
  version INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL DEFAULT '',
  updated_by TEXT NOT NULL DEFAULT '',
  UNIQUE (rule, key)
);
CREATE INDEX sluice_overrides_entity ON sluice_overrides (entity_type, entity_id);
CREATE INDEX sluice_overrides_version ON sluice_overrides (version);

-- Bearer tokens. hash is the SHA-256 of the token.
CREATE TABLE sluice_tokens (
  name TEXT NOT NULL PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
  expires_at TEXT NOT NULL DEFAULT '',
  created_at TEXT NOT NULL DEFAULT '',
  version INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL DEFAULT '',
  updated_by TEXT NOT NULL DEFAULT ''
);

-- The audit log: the actor of each change, and the row before and after it.
CREATE TABLE sluice_audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  kind TEXT NOT NULL,
  target TEXT NOT NULL,
  before TEXT,
  after TEXT
);
CREATE INDEX sluice_audit_target ON sluice_audit (kind, target);

-- +goose StatementBegin
CREATE TRIGGER sluice_settings_insert AFTER INSERT ON sluice_settings BEGIN
  UPDATE sluice_version SET value = value + 1, settings = value + 1;
  UPDATE sluice_settings SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_settings_update AFTER UPDATE OF id, document, updated_at, updated_by ON sluice_settings BEGIN
  UPDATE sluice_version SET value = value + 1, settings = value + 1;
  UPDATE sluice_settings SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_settings_delete AFTER DELETE ON sluice_settings BEGIN
  UPDATE sluice_version SET value = value + 1, settings = value + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_rules_insert AFTER INSERT ON sluice_rules BEGIN
  UPDATE sluice_version SET value = value + 1, rules = value + 1;
  UPDATE sluice_rules SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_rules_update AFTER UPDATE OF name, position, enabled, document, key_pattern, requests_limit, window_seconds, tiers, updated_at, updated_by ON sluice_rules BEGIN
  UPDATE sluice_version SET value = value + 1, rules = value + 1;
  UPDATE sluice_rules SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_rules_delete AFTER DELETE ON sluice_rules BEGIN
  UPDATE sluice_version SET value = value + 1, rules = value + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_tiers_insert AFTER INSERT ON sluice_tiers BEGIN
  UPDATE sluice_version SET value = value + 1, tiers = value + 1;
  UPDATE sluice_tiers SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_tiers_update AFTER UPDATE OF name, description, limits, updated_at, updated_by ON sluice_tiers BEGIN
  UPDATE sluice_version SET value = value + 1, tiers = value + 1;
  UPDATE sluice_tiers SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_tiers_delete AFTER DELETE ON sluice_tiers BEGIN
  UPDATE sluice_version SET value = value + 1, tiers = value + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_subjects_insert AFTER INSERT ON sluice_subjects BEGIN
  UPDATE sluice_version SET value = value + 1, subjects = value + 1;
  UPDATE sluice_subjects SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_subjects_update AFTER UPDATE OF subject, tier, expires_at, reason, made_by, updated_at, updated_by ON sluice_subjects BEGIN
  UPDATE sluice_version SET value = value + 1, subjects = value + 1;
  UPDATE sluice_subjects SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_subjects_delete AFTER DELETE ON sluice_subjects BEGIN
  UPDATE sluice_version SET value = value + 1, subjects = value + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_overrides_insert AFTER INSERT ON sluice_overrides BEGIN
  UPDATE sluice_version SET value = value + 1, overrides = value + 1;
  UPDATE sluice_overrides SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_overrides_update AFTER UPDATE OF id, rule, key, entity_type, entity_id, limits, block, exempt, requests_limit, window_seconds, expires_at, reason, made_by, updated_at, updated_by ON sluice_overrides BEGIN
  UPDATE sluice_version SET value = value + 1, overrides = value + 1;
  UPDATE sluice_overrides SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_overrides_delete AFTER DELETE ON sluice_overrides BEGIN
  UPDATE sluice_version SET value = value + 1, overrides = value + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_tokens_insert AFTER INSERT ON sluice_tokens BEGIN
  UPDATE sluice_version SET value = value + 1, tokens = value + 1;
  UPDATE sluice_tokens SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_tokens_update AFTER UPDATE OF name, hash, role, expires_at, created_at, updated_at, updated_by ON sluice_tokens BEGIN
  UPDATE sluice_version SET value = value + 1, tokens = value + 1;
  UPDATE sluice_tokens SET version = (SELECT value FROM sluice_version) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sluice_tokens_delete AFTER DELETE ON sluice_tokens BEGIN
  UPDATE sluice_version SET value = value + 1, tokens = value + 1;
END;
-- +goose StatementEnd
