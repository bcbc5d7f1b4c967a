-- The schema of a journal, version 2. What it means is in schema.rs.

CREATE TABLE record (
    seq     INTEGER PRIMARY KEY CHECK (seq > 0),
    at_ms   INTEGER NOT NULL CHECK (at_ms >= 0),
    kind    TEXT    NOT NULL,
    version INTEGER NOT NULL CHECK (version BETWEEN 0 AND 4294967295),
    body    TEXT    NOT NULL,
    chain   BLOB    NOT NULL CHECK (length(chain) = 32)
) STRICT;

CREATE TRIGGER record_is_never_changed BEFORE UPDATE ON record
BEGIN SELECT raise(ABORT, 'records are never changed'); END;

CREATE TRIGGER record_is_never_deleted BEFORE DELETE ON record
BEGIN SELECT raise(ABORT, 'records are never deleted'); END;

CREATE TABLE snapshot (
    seq    INTEGER PRIMARY KEY CHECK (seq > 0),
    packed BLOB    NOT NULL,
    length INTEGER NOT NULL CHECK (length >= 0),
    sum    BLOB    NOT NULL CHECK (length(sum) = 32)
) STRICT;

PRAGMA application_id = 1112887891; -- 'BURS'
PRAGMA user_version = 2;
