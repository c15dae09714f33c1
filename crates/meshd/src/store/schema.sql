-- What an analyzer keeps. Times are nanoseconds of the Unix clock.
CREATE TABLE finding (
    id INTEGER PRIMARY KEY,
    trouble TEXT NOT NULL,
    severity TEXT NOT NULL,
    since INTEGER NOT NULL,
    -- NULL while it is open.
    over INTEGER,
    crossings REAL NOT NULL,
    losses REAL NOT NULL,
    expected REAL NOT NULL,
    gain REAL NOT NULL
) STRICT;
CREATE INDEX finding_over ON finding (over);
CREATE TABLE suspect (
    finding INTEGER NOT NULL REFERENCES finding (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (finding, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE agent (
    name TEXT PRIMARY KEY,
    -- The newest window that is settled.
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    -- When the newest window ended.
    through INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    replays INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    ok INTEGER NOT NULL,
    slow INTEGER NOT NULL,
    ack2_lost INTEGER NOT NULL,
    ack1_lost INTEGER NOT NULL,
    time_out INTEGER NOT NULL,
    late INTEGER NOT NULL,
    invalid INTEGER NOT NULL,
    host INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
