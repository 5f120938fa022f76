// Tests the functions of the console that need no page: node console_format.mjs FOLDER

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const format = await import(new URL("format.js", pathToFileURL(`${process.argv[2]}/`)));

assert.deepEqual([null, undefined, 0, 1234567].map(format.count), ["–", "–", "0", "1,234,567"]);
assert.deepEqual([0, 999, 1000, 1536000, 2e14, null].map(format.bytes), ["0 B", "999 B", "1.0 kB", "1.5 MB", "200 TB", "–"]);
assert.deepEqual([0, 0.016, 5, 123.4, 12345].map(format.rate), ["0", "0.016", "5.0", "123", "12,345"]);
assert.deepEqual([0.0123, 0.9999, 1.5, 75, 600, 86400, 864000, null].map(format.seconds),
  ["12 ms", "1.00 s", "1.50 s", "75 s", "10 min", "24 h", "10 days", "–"]);
assert.equal(format.ago(1000, 1500), "now");
assert.equal(format.ago(1000, 6000), "5 s ago");
assert.equal(format.ago(9000, 1000), "now");
const noon = Date.parse("2026-05-01T12:00:00.123Z");
assert.equal(format.clock(noon, noon + 1000), "12:00:00Z");
assert.equal(format.clock(noon, noon + 86400000), "2026-05-01 12:00:00Z");
assert.deepEqual([5, 10000, 1500000].map(format.short), ["5", "10k", "1.5M"]);

const uri = "file:///lake/<b>a b&c=d?e#f%20</b>";
const shown = format.address("table", { uri, branch: "", last: 5 });
assert.ok(shown.startsWith("#/table?") && !shown.includes("<"));
assert.deepEqual(format.route(shown), { name: "table", parameters: { uri, last: "5" } });
assert.deepEqual(format.route(""), { name: "tables", parameters: {} });
assert.equal(format.address("tables"), "#/");

const name = (low, high) => `${low}-${high}`;
assert.deepEqual(format.groups([1, 10], [0, 2, 0], name), [{ name: "1-10", number: 2 }]);
assert.deepEqual(format.groups([1, 10], [0, 0, 0], name), []);

const version = { operation: "update", operations: { append: 2, delete: 1 }, move: null, positions: null,
  apps: [{ app_id: "a", first_batch: 1, last_batch: 3 }, { app_id: "b", first_batch: 2, last_batch: 2 }] };
assert.equal(format.operation(version), "append x2, delete x1");
assert.equal(format.operation({ ...version, operations: { delete_branch: 1 } }), "delete_branch");
assert.equal(format.operation({ ...version, operations: {}, move: { why: "rebound" } }), "update (rebound)");
assert.deepEqual(format.batches(version), ["a:1-3", "b:2"]);
assert.equal(format.positions(version), "–");
assert.equal(format.positions({ positions: { topic: "t", partition: 1, first_offset: 4, last_offset: 9 } }), "t/1@4-9");
assert.deepEqual([format.change(5, 2), format.change(null, null), format.change(3, 0)], ["+5 -2", "–", "+3"]);
