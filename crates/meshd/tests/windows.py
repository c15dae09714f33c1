"""Reads raw windows with DuckDB. Argument: their directory. Prints one JSON object with their sums."""

import json
import sys

import duckdb

files = f"{sys.argv[1]}/windows-*.parquet"
names = ["ok", "slow", "ack2_lost", "ack1_lost", "time_out", "late", "invalid", "host_fault"]
windows = f"read_parquet('{files}')"


def one(query):
    return duckdb.sql(query).fetchall()[0]


told = {
    "sums": [int(value) for value in one(f"SELECT {', '.join(f'sum({name})' for name in names)} FROM {windows}")],
    "rows": one(f"SELECT count(*) FROM {windows}")[0],
    "agents": [row[0] for row in duckdb.sql(f"SELECT DISTINCT agent FROM {windows} ORDER BY 1").fetchall()],
    "hosts": one(f"SELECT count(*) FROM {windows} WHERE agent <> host")[0],
    "tors": [row[0] for row in duckdb.sql(f"SELECT DISTINCT source_tor FROM {windows} ORDER BY 1").fetchall()],
    # A flow of a window is there once.
    "doubles": one(f"""SELECT count(*) FROM (SELECT 1 FROM {windows} GROUP BY agent, window_start, source, target, port,
                       reply_port HAVING count(*) > 1)""")[0],
    "wrong": one(f"""SELECT count(*) FROM {windows} WHERE window_start >= window_end OR rtt_count > ok + late
                     OR rtt_p50_ns > rtt_p99_ns OR (rtt_count = 0) <> (rtt_p50_ns IS NULL)
                     OR rtt_sum_ns < rtt_p50_ns * rtt_count // 2""")[0],
    "trips": int(one(f"SELECT sum(rtt_count) FROM {windows}")[0]),
    "newest_us": one(f"SELECT epoch_us(max(window_end)) FROM {windows}")[0],
}
print(json.dumps(told))
