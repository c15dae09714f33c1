-- What controllers and analyzers share. Times are nanoseconds of the Unix clock; numbers of 64 bits without a sign
-- are kept as numbers with one, bit by bit.
CREATE SCHEMA ferroce_mesh;
CREATE TABLE ferroce_mesh.version (version bigint NOT NULL);
INSERT INTO ferroce_mesh.version VALUES (1);
-- Which process leads. The lock says so; this says which it is, and how often that has changed.
CREATE TABLE ferroce_mesh.leader (
    role text PRIMARY KEY,
    term bigint NOT NULL,
    place text NOT NULL
);
-- The controller's: agents, their RNICs, and where the analyzer is.
CREATE TABLE ferroce_mesh.agent (
    name text PRIMARY KEY,
    epoch bigint NOT NULL,
    is_rebuild boolean NOT NULL
);
CREATE TABLE ferroce_mesh.rnic (
    agent text NOT NULL REFERENCES ferroce_mesh.agent (name) ON DELETE CASCADE,
    place bigint NOT NULL,
    address text NOT NULL,
    qpn bigint NOT NULL,
    host text NOT NULL,
    tor text NOT NULL,
    device text NOT NULL,
    PRIMARY KEY (agent, place)
);
CREATE TABLE ferroce_mesh.analyzer (url text NOT NULL, term bigint NOT NULL);
-- The analyzer's: findings, and which windows of which agents it has.
CREATE TABLE ferroce_mesh.finding (
    id bigint PRIMARY KEY,
    trouble text NOT NULL,
    severity text NOT NULL,
    since bigint NOT NULL,
    -- NULL while it is open.
    over bigint,
    crossings double precision NOT NULL,
    losses double precision NOT NULL,
    expected double precision NOT NULL,
    gain double precision NOT NULL
);
CREATE INDEX finding_over ON ferroce_mesh.finding (over);
CREATE TABLE ferroce_mesh.suspect (
    finding bigint NOT NULL REFERENCES ferroce_mesh.finding (id) ON DELETE CASCADE,
    place bigint NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (finding, place)
);
CREATE TABLE ferroce_mesh.report (
    agent text PRIMARY KEY,
    -- The newest window that is settled.
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    -- When the newest window ended.
    through bigint NOT NULL,
    kept bigint NOT NULL,
    replays bigint NOT NULL,
    refused bigint NOT NULL,
    lost bigint NOT NULL,
    -- The sums of all outcomes, in the order of their names.
    sums bigint[] NOT NULL
);
