/// Marks a file as ours in SQLite's header: "DuAd".
pub(crate) const APPLICATION_ID: i64 = 0x4475_4164;

/// The version of what follows, in SQLite's `user_version`.
pub(crate) const SCHEMA_VERSION: i64 = 1;

/// CHECKs are tripwires: the verbs never run into one. A longer list behind IN would be built as a table at each write.
///
/// - `task.due` is what claims look at: 0 = claimable now, a lease = claimable from that tick on, NULL =
///   not claimable. A claim first sets to 0 what has run out, so that the oldest claimable task is the
///   first entry of the index, however many tasks wait, run or have ended.
/// - `task.bytes` is what was charged, and is given back as it is.
/// - `usage` is the ledger of outstanding tasks; the tenant '', which no request can have, is the global one.
pub(crate) const CREATE: &str = "
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    global_count INTEGER NOT NULL CHECK (global_count >= 0),
    global_bytes INTEGER NOT NULL CHECK (global_bytes >= 0),
    tenant_count INTEGER NOT NULL CHECK (tenant_count >= 0),
    tenant_bytes INTEGER NOT NULL CHECK (tenant_bytes >= 0),
    payload_bytes INTEGER NOT NULL CHECK (payload_bytes >= 0),
    tick INTEGER NOT NULL DEFAULT 0 CHECK (tick BETWEEN 0 AND 1000000000)
) STRICT;

CREATE TABLE intent (
    sequence INTEGER PRIMARY KEY CHECK (sequence >= 1),
    request_id TEXT NOT NULL UNIQUE CHECK (octet_length(request_id) BETWEEN 1 AND 128),
    tenant TEXT NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 128),
    bytes INTEGER NOT NULL CHECK (bytes = octet_length(payload)),
    payload TEXT NOT NULL
) STRICT;

CREATE TABLE task (
    sequence INTEGER PRIMARY KEY REFERENCES intent (sequence),
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    state TEXT NOT NULL CHECK (state = 'queued' OR state = 'inflight' OR state = 'quarantined' OR state = 'done' OR state = 'cancelled'),
    generation INTEGER NOT NULL DEFAULT 0 CHECK (generation BETWEEN 0 AND 1000000000),
    lease INTEGER CHECK (lease BETWEEN 5 AND 1000000000),
    due INTEGER DEFAULT 0,
    CHECK ((state = 'inflight') = (lease IS NOT NULL)),
    CHECK (generation >= 1 OR state IN ('queued', 'cancelled')),
    CHECK (generation = 0 OR state <> 'cancelled'),
    CHECK (CASE state WHEN 'queued' THEN due IS 0 WHEN 'inflight' THEN due IS 0 OR due IS lease ELSE due IS NULL END)
) STRICT;

CREATE INDEX claimable ON task (due, sequence) WHERE due IS NOT NULL;

CREATE TABLE effect (
    sequence INTEGER PRIMARY KEY REFERENCES task (sequence),
    effect TEXT NOT NULL
) STRICT;

CREATE TABLE usage (
    tenant TEXT PRIMARY KEY CHECK (octet_length(tenant) <= 128),
    count INTEGER NOT NULL CHECK (count >= 0),
    bytes INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT, WITHOUT ROWID;

INSERT INTO usage (tenant, count, bytes) VALUES ('', 0, 0);
";
