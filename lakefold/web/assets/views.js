// Makes the page's parts from the answers of the JSON API. Every text from an answer becomes a text node or an
// attribute that is no address and no script, so a name such as "<script>" is shown and nothing of it runs.

import * as format from "./format.js";

const { count, seconds, rate, bytes, address } = format;

/** Returns an element with attributes and children. A child that is not an element becomes text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return element;
}

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children.map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return element;
}

/** Returns a link to another view of the page. */
export function link(text, name, parameters) {
  return make("a", { href: address(name, parameters) }, text);
}

/** Returns a table. A column is its title, the function that makes a cell, and its kind: true for numbers, "wide" for sentences. */
export function grid(caption, columns, rows, rowClass = () => "") {
  const kindOf = (kind) => (kind === true ? "number" : kind ? `text ${kind}` : "text");
  const head = make("tr", {}, columns.map(([title, , kind]) => make("th", { scope: "col", class: kindOf(kind) }, title)));
  const body = rows.map((row) => make("tr", { class: rowClass(row) || null }, columns.map(([title, cell, kind]) =>
    make("td", { class: kindOf(kind), "data-title": title }, make("div", {}, cell(row))))));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, body)));
}

/** Returns figures as cards: each is a value and what it means. */
export function cards(figures) {
  return make("ul", { class: "cards" }, figures.map(([label, value, kind]) =>
    make("li", {}, make("span", { class: `value ${kind || ""}` }, value), make("span", { class: "label" }, label))));
}

/** Returns when something was: the time of the day, with the date if that is not today's, and how long ago. */
export function time(milliseconds) {
  if (!Number.isFinite(milliseconds)) return "–";
  const moment = new Date(milliseconds), now = Date.now();
  return make("time", { datetime: moment.toISOString(), title: moment.toISOString() },
    `${format.clock(milliseconds, now)} (${format.ago(milliseconds, now)})`);
}

/** Returns the health of a table: its state, and what is wrong with the command that helps. */
export function health({ state, findings }) {
  return make("div", {}, make("span", { class: `kind health-${state}` }, state === "loading" ? "loading…" : state),
    findings.map((each) => make("div", {}, each.text, ": ", make("code", {}, words(each.command)))));
}

/** Returns an outcome as a short text with its reason. */
export function outcome(last, uri) {
  if (!last) return make("span", { class: "faint" }, "none in the last hour");
  const text = last.message ? ` ${shortened(last.message, 160)},` : last.version ? ` version ${count(last.version)},` : "";
  return make("span", {}, make("a", {
    class: `kind ${last.kind}`, href: address("proposal", { uri, proposal: last.position, branch: last.branch }),
  }, last.kind), text, " ", time(last.time * 1000));
}

/** Returns why a table is parked, or null. */
function parked(rows) {
  return rows.length === 0 ? null : make("div", {}, rows.map((each) => make("div", { class: "parked" },
    `parked for ${seconds(each.seconds)}${each.branch ? ` (branch ${each.branch})` : ""}: ${each.reason}.${each.hint ? ` ${each.hint}.` : ""} `,
    `Entries that wait: ${count(each.entries)}.`)));
}

/** Returns a number of entries that wait, which may not be known. */
function waiting(entries) {
  return entries === null || entries === undefined ? "unknown" : count(entries);
}

function readers(consumers) {
  return consumers.map((each) => make("span", { class: "chip" },
    `${each.name}: ${each.unread_versions === null ? "its branch is gone" : each.unread_versions === 0 ? "up to date" : `${count(each.unread_versions)} behind`}`));
}

/** Returns what can't be read or asked now, and why. */
export function problems(overview) {
  const uncounted = overview.dead_letters_problem ? `dead letters can't be counted: ${overview.dead_letters_problem}` : "";
  return [overview.problem, overview.feed_problem, overview.tables_problem, uncounted].filter(Boolean);
}

function deadLetters(overview) {
  if (overview.dead_letters_problem) return "unknown";
  return `${overview.about_dead_letters ? "about " : ""}${count(overview.dead_letters)}${overview.more_dead_letters ? " or more" : ""}`;
}

/** Returns the figures of the log and of all tables. */
export function overviewCards(overview) {
  const committer = overview.committer;
  const others = otherCommitters(overview);
  // Committers of the group work also if none answers at the one address that is asked.
  const grouped = committer.problem && (overview.members || []).some((each) => each.partitions.length);
  const state = grouped ? "not asked" : committer.problem ? "unknown" : committer.ready ? "ready" : "not ready";
  return make("div", {}, cards([
    ["tables", count(overview.tables)],
    ["entries without an outcome (lag)", count(overview.lag), overview.lag > 1000 ? "rejected" : ""],
    [`parked tables of the committer at ${asked(committer)}`, committer.problem ? "unknown" : count(committer.parked.length), committer.parked.length ? "parked" : ""],
    ["dead letters", deadLetters(overview), overview.dead_letters ? "rejected" : ""],
    [`committer at ${asked(committer)}`, state, grouped ? "" : committer.ready ? "committed" : "rejected"],
  ]), others ? make("p", {}, others) : null);
}

/** Returns the committer that was asked: its name in the group, else its address. */
function asked(committer) {
  return committer.name || committer.address;
}

/** Returns what is not known of committers that were not asked, empty if there are none. */
function otherCommitters(overview) {
  const only = `Only the committer at ${asked(overview.committer)} was asked`;
  if (!overview.members) return `${only}. Whether others share the partitions is not known.`;
  if (overview.committer.problem && overview.members.length) {
    return `${count(overview.members.length)} ${overview.members.length > 1 ? "committers share" : "committer has"} the partitions, and ${overview.committer.problem}: give the --http-host and --http-port of one of them to see whether it is ready, and which tables it has parked.`;
  }
  return overview.members.length < 2 ? "" : `${count(overview.members.length)} committers share the partitions. ${only}: whether the others are ready, and which tables they have parked, is not known here.`;
}

/** Returns the committers that share the partitions, with the state of the committer that was asked. */
function members(overview) {
  if (!overview.members || !overview.members.length) return null;
  const state = (each) => (each.name && each.name === overview.committer.name && !overview.committer.problem
    ? overview.committer.ready ? "ready" : "not ready" : "unknown: not asked here");
  return grid("committers that share the partitions", [
    ["name", (each) => each.name || "–"], ["host", (each) => each.host],
    ["partitions", (each) => (each.partitions.length ? each.partitions.join(", ") : "none, it stands by")],
    ["state", state]], overview.members);
}

/** Returns when the committer stopped answering or answered again, the newest change first; nothing if it never did. */
export function committerChanges(committer) {
  const changes = (committer.changes || []).slice(-6).reverse();
  if (changes.length < 2) return null;
  return make("p", { class: "changes" }, "Committer: ", changes.map((each, index) => [index ? " ← " : "",
    make("span", { class: `kind ${each.state === "ready" ? "committed" : "rejected"}` }, each.state), " ", time(each.time * 1000)]).flat());
}

/** Returns the list of tables. `fresh`: the URIs whose rows have just changed. */
export function tableList(page, fresh) {
  if (!page.tables.length) {
    return make("p", { class: "faint" }, page.problem || "No table is known below the roots yet. It appears here with its first version.");
  }
  return grid(`${count(page.total)} tables`, [
    ["table", (row) => link(row.name, "table", { uri: row.table }), "medium"],
    ["health", (row) => health(row.health), "wide"],
    ["rows/s", (row) => rate(row.activity.rows_rate), true],
    ["size", (row) => bytes(row.bytes), true],
    ["last change", (row) => time(format.millis(row.timestamp))],
    ["format", (row) => row.format || "–"],
    ["version", (row) => count(row.version), true],
    ["rows", (row) => count(row.rows), true],
    ["fragments (small)", (row) => `${count(row.fragments)} (${count(row.small_fragments)})`, true],
    ["queued (in Kafka)", (row) => (row.loading ? "–" : `${waiting(row.waiting)} (${waiting(row.partition_lag)})`), true],
    ["commit latency", (row) => seconds(row.seconds_to_visible), true],
    ["last outcome", (row) => (row.loading ? "loading…" : outcome(row.activity.last, row.table)), "medium"],
    ["consumers", (row) => (row.consumers && row.consumers.length ? make("div", {}, readers(row.consumers)) : "–"), "medium"],
  ], page.tables, (row) => (fresh.has(row.table) ? "new" : ""));
}

/** Draws the plots of a table or of all, as wide as the element has room for them. `uPlot` is the charting library. */
export function plots(series, uPlot, element) {
  const ink = getComputedStyle(document.documentElement);
  const colour = (name) => ink.getPropertyValue(name).trim();
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui" };
  const hours = (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" }));
  const plot = (lines, unit, root, width) => {
    const options = {
      width, height: 170, legend: { show: true, live: false }, cursor: { show: false },
      axes: [{ ...axis, size: 30, values: hours }, { ...axis, size: 60, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : unit(tick))) }],
      scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, low || 0) * 1.1 || 1] } },
      series: [{}, ...lines.map(([label, values, name]) => ({
        label, stroke: colour(name), width: 1.5,
        // A value with nothing known beside it would not be seen, as no line crosses a gap.
        points: { show: values.includes(null), size: 4 },
      }))],
    };
    return new uPlot(options, [series.time, ...lines.map(([, values]) => values)], root);
  };
  const drawn = (series.answered ? [
    ["outcomes per second", [["committed or duplicate", series.answered, "--good"], ["rejected or invalid", series.refused, "--bad"]], rate],
    ["rows per second", [["rows", series.rows, "--link"]], (value) => format.short(value)],
  ] : [
    ["outcomes per second", [["committed", series.committed, "--good"], ["duplicate", series.duplicate, "--warn"],
      ["rejected or invalid", series.rejected.map((value, index) => value + series.invalid[index]), "--bad"]], rate],
    ["rows per second", [["rows", series.rows, "--link"]], (value) => format.short(value)],
    ["commit latency in seconds (samples)", [["median", series.seconds_median, "--link"], ["95 of 100", series.seconds_95, "--warn"]], seconds],
    ["entries without an outcome (lag)", [["lag", series.lag, "--link"]], (value) => format.short(value)],
  ]).map(([title, lines, unit]) => {
    const root = make("figure", { class: "plot", role: "img", "aria-label": title }, make("figcaption", {}, title));
    return [root, lines, unit];
  });
  element.replaceChildren(...drawn.map(([root]) => root));
  for (const [root, lines, unit] of drawn) plot(lines, unit, root, root.firstChild.clientWidth);
}

/** Returns bars, one for each group of fragments. */
export function bars(title, groups, bad) {
  const most = Math.max(1, ...groups.map((group) => group.number));
  const rows = groups.map((group, index) => drawn("g", { transform: `translate(0 ${index * 22})` },
    drawn("text", { x: 0, y: 15 }, group.name),
    drawn("rect", { x: 130, y: 3, height: 15, width: Math.max(group.number ? 2 : 0, (group.number / most) * 200), class: `bar ${bad && group.name !== "none" ? "bad" : ""}` }),
    drawn("text", { x: 138 + (group.number / most) * 200, y: 15 }, count(group.number))));
  const label = `${title}: ${groups.map((group) => `${group.name}: ${group.number}`).join(", ")}`;
  return make("figure", { class: "plot" }, make("figcaption", {}, title),
    drawn("svg", { viewBox: `0 0 420 ${groups.length * 22 || 22}`, role: "img", "aria-label": label }, ...rows));
}

/** Returns the fragments of a table, by their rows and by the share of deleted rows. */
export function fragments(document) {
  const range = (low, high) => (low === null ? "none" : high === null ? `${format.short(low)} or more`
    : high < 1000 ? `${low} to ${high - 1}` : `${format.short(low)} to below ${format.short(high)}`);
  const share = (low, high) => (low === null ? "none" : high === null ? "over 75 %" : `up to ${Math.round(high * 100)} %`);
  const rows = format.groups(document.rows_bounds, document.by_rows, range);
  // The first group has no deleted rows; the bound of a group is its upper end.
  const shares = format.groups(document.share_bounds, document.by_deleted_share, (low, high) => (high === 0 ? "none" : share(low, high)));
  return [
    make("p", {}, `${count(document.fragments)} fragment${document.fragments === 1 ? "" : "s"}, ${count(document.small)} of them smaller than the policy's target of `,
      `${count(document.target_rows)} rows; ${bytes(document.bytes)} of data files; ${count(document.deleted_rows)} deleted rows.`),
    make("div", { class: "two" }, bars("fragments by live rows", rows), bars("fragments by deleted share", shares, true)),
  ];
}

/** Returns the history of a table: who made each version, from which positions, and how fast. */
export function versions(page, uri, branch) {
  const app = (version) => {
    const names = format.batches(version);
    if (!names.length) return version.own ? make("span", { class: "faint" }, "no app id") : make("span", { class: "faint" }, "another client");
    const undone = (version.undone || []).map((each) => make("span", { class: "kind rejected" },
      `${each.app_id}:${each.first === each.last ? each.first : `${each.first}-${each.last}`} undone in ${count(each.by)}`));
    return make("div", {}, [...version.apps.map((each, index) => make("a", {
      class: "chip", href: address("proposal", { uri, branch, proposal: `${each.app_id}:${each.last_batch}` }),
    }, names[index])), ...undone]);
  };
  const log = (version) => (version.positions ? make("a", { href: address("proposal", {
    uri, branch, proposal: `${version.positions.topic}/${version.positions.partition}@${version.positions.last_offset}` }) }, format.positions(version)) : "–");
  return grid("versions, newest first", [
    ["version", (version) => link(count(version.version), "version", { uri, branch, version: version.version }), true],
    ["time", (version) => time(format.millis(version.timestamp))],
    ["operation", (version) => format.operation(version)],
    ["batches", app],
    ["author", (version) => version.authors.map(format.author).join("; ") || "–"],
    ["positions in the log", log],
    ["entries", (version) => count(version.entries), true],
    ["refused", (version) => count(version.refused), true],
    ["rows", (version) => format.change(version.rows_in, version.rows_out), true],
    ["files", (version) => format.change(version.files_in, version.files_out), true],
    ["commit latency", (version) => seconds(version.seconds_to_visible), true],
  ], page.versions);
}

/** Returns one version: who made it, what differs from the one before, and rows if they are asked for. */
export function version(document, uri, branch) {
  const { diff, rows, note } = document;
  const files = (total) => `${count(total.files)} (${bytes(total.bytes)})`;
  const columns = diff && [...diff.columns_added.map((name) => `+ ${name}`), ...diff.columns_dropped.map((name) => `- ${name}`),
    ...diff.columns_changed.map((each) => `${each.before}: ${each.type_before} became ${each.name}: ${each.type}`)].join(", ");
  const names = rows && rows.length ? Object.keys(rows[0]) : [];
  return [
    versions({ versions: [document.version] }, uri, branch),
    diff ? cards([["rows", format.change(document.version.rows_in, document.version.rows_out)],
      ["data files added", files(diff.files_added)], ["data files removed", files(diff.files_removed)],
      ["columns", columns || "the same"]]) : make("p", { class: "faint" }, note),
    rows ? grid(rows.length ? "the first rows that differ" : "no row differs",
      names.map((name) => [name, (row) => (row[name] === null ? "null" : typeof row[name] === "object" ? JSON.stringify(row[name]) : String(row[name]))]), rows) : null,
  ].filter(Boolean);
}

/** Returns tags and branches as a graph: a line for each branch, from the version that it began with. */
export function graph(table, uri) {
  const branches = [{ name: "main", version: table.version, from: null, parent: null }, ...table.branches.slice(0, 20).map((each) => ({
    name: each.name, version: each.version, from: each.parent_version, parent: each.parent_branch || "main" }))];
  const tags = table.tags.slice(0, 40);
  const most = Math.max(1, ...branches.map((each) => each.version || 0), ...tags.map((tag) => tag.version));
  const x = (version) => 140 + ((version || 0) / most) * 560;
  // The names of tags are above their branch, in as many lines as it takes that none covers another.
  const placed = branches.map((each) => namesInLines(tags.filter((tag) => (tag.branch || "main") === each.name), x));
  const heights = placed.map((lines) => Math.max(44, 30 + 15 * lines.length));
  const y = (name) => {
    const index = Math.max(0, branches.findIndex((each) => each.name === (name || "main")));
    return heights.slice(0, index + 1).reduce((sum, each) => sum + each, 0) - 14;
  };
  const shapes = branches.flatMap((each) => {
    const start = each.from === null ? 0 : each.from;
    const end = Math.max(x(each.version), x(start) + 8);
    const fork = each.parent === null ? [] : [drawn("path", { class: "line", d: `M${x(start)} ${y(each.parent)}L${x(start)} ${y(each.name)}` })];
    return [...fork, drawn("path", { class: "line", d: `M${x(start)} ${y(each.name)}L${end} ${y(each.name)}` }),
      drawn("text", { x: 0, y: y(each.name) + 4 }, shortened(each.name), drawn("title", {}, each.name)),
      drawn("circle", { class: "dot", r: 5, cx: end, cy: y(each.name) }),
      drawn("text", { x: end + 9, y: y(each.name) + 4 }, each.version === null ? "no version" : each.version)];
  });
  const marks = placed.flatMap((lines, index) => lines.flatMap((line, height) => line.map((tag) => {
    const top = y(branches[index].name) - 14 - 15 * height;
    return drawn("g", {}, drawn("path", { class: "tag", d: `M${x(tag.version)} ${top + 10}l-5 -8h10z` }),
      height ? drawn("path", { class: "stem", d: `M${x(tag.version)} ${top + 8}V${top + 10 + 15 * height}` }) : "",
      drawn("text", { x: x(tag.version) + 8, y: top + 9 }, shortened(tag.name)), drawn("title", {}, `${tag.name}: version ${tag.version}`));
  })));
  const names = tags.map((tag) => make("span", { class: "chip" }, `${tag.name}: version ${tag.version}${tag.branch ? ` of ${tag.branch}` : ""}`));
  const others = branches.slice(1).map((each) => make("span", { class: "chip" }, link(`versions of ${each.name}`, "table", { uri, branch: each.name })));
  const hidden = table.tags.length + table.branches.length - tags.length - branches.length + 1;
  return make("div", {}, make("figure", { class: "plot", tabindex: "0" }, make("figcaption", {}, "branches, and the versions that tags name"),
    drawn("svg", { class: "graph", viewBox: `0 0 760 ${y(branches.at(-1).name) + 14}`, role: "img",
      "aria-label": `branches: ${branches.map((each) => each.name).join(", ")}` }, ...shapes, ...marks)),
    names.length ? make("p", {}, names) : null, others.length ? make("p", {}, others) : null,
    hidden > 0 ? make("p", { class: "faint" }, `${hidden} more are not drawn; lakefold refs lists all.`) : null);
}

function shortened(text, most = 20) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Returns tags in lines, in which no name covers the next one. A letter is about 7 wide. */
function namesInLines(tags, x) {
  const lines = [];
  for (const tag of [...tags].sort((one, other) => other.version - one.version)) {
    const end = x(tag.version) + 16 + 7 * shortened(tag.name).length;
    const free = lines.find((line) => x(line.at(-1).version) - 6 > end);
    if (free) free.push(tag);
    else lines.push([tag]);
  }
  return lines;
}

/** Returns the parts of a table's page that its newest version determines. */
export function tableHead(table) {
  const marks = table.marks;
  return [
    make("h1", {}, table.table),
    parked(table.parked),
    cards([["version", count(table.version)], ["rows", count(table.rows)], ["deleted rows", count(table.deleted_rows)],
      ["fragments", count(table.fragments)], ["format", table.format], ["apps whose batches it knows", count(marks ? marks.app_count : 0)], ["queued in the committer", waiting(table.waiting)],
      ["queued in Kafka", waiting(table.partition_lag)], ["outcomes per second", rate(table.activity.rate)]]),
    make("p", {}, "Last outcome: ", outcome(table.activity.last, table.table)),
    marks && marks.position ? make("p", { class: "faint" },
      `Contains the log up to offset ${marks.position.offset} of ${marks.position.topic}/${marks.position.partition}, by the committer with epoch ${marks.epoch}.`)
      : make("p", { class: "faint" }, "Bound to no log: no committer has written this version's marks."),
  ];
}

/** Returns how many old versions are kept, for whom, and the files that only they need. */
export function kept(document) {
  const reasons = { removable: "nobody: a clean-up removes them", policy: "the policy (age, or the newest versions)" };
  const whom = (row) => reasons[row.reason] || `${row.reason}: ${row.names.length ? row.names.join(", ") : "none"}`;
  return make("div", {}, grid("old versions, and the files that only they need", [
    ["kept for", whom], ["versions", (row) => count(row.versions), true],
    ["data files", (row) => count(row.files), true], ["size", (row) => bytes(row.bytes), true]], document.kept),
    make("p", { class: "faint" }, document.note));
}

/** Returns the columns of the newest version, and how the schema changed. */
export function schema(table, history) {
  const changes = history.changes.map((change) => make("li", {}, `version ${change.version}: `, [
    ...Object.entries(change.added).map(([name, kind]) => `added ${name} (${kind})`),
    ...Object.entries(change.removed).map(([name, kind]) => `removed ${name} (${kind})`),
    ...Object.entries(change.changed).map(([name, [before, after]]) => `${name}: ${before} became ${after}`),
    ...(change.reordered ? ["the order of the columns changed"] : [])].join("; ")));
  return [
    grid("columns of the newest version", [["column", (field) => field.name], ["type", (field) => field.type],
      ["null", (field) => (field.nullable ? "yes" : "no")]], table.schema),
    make("p", { class: "faint" }, `Changes in versions ${count(history.searched_from)} to ${count(history.searched_to)}: ${changes.length ? "" : "none."}`),
    make("ul", {}, changes),
  ];
}

/** Returns the named consumers of a table, and what is kept for them. */
export function consumers(table) {
  if (!table.consumers.length) return make("p", { class: "faint" }, "No consumer has a name, so no version is kept for a reader.");
  return grid("consumers; the versions that one has not read are kept for it", [
    ["consumer", (each) => each.name], ["branch", (each) => each.branch || "main"],
    ["has read version", (each) => (each.cursor === null ? "none" : count(each.version)), true],
    ["versions kept for it", (each) => (each.unread_versions === null ? "its branch is gone" : count(each.unread_versions)), true],
    ["last change", (each) => time(format.millis(each.updated_at))], ["by", (each) => each.by]], table.consumers);
}

/** Returns the way of one proposal, from its writer to the answer, and the evidence of its conflict. */
export function proposal(explanation) {
  const result = explanation.outcome || {};
  const kind = ["committed", "duplicate", "rejected", "invalid"].find((name) => name in result);
  const conflict = result.rejected;
  const at = explanation.position;
  const version = explanation.version;
  const proposed = explanation.proposal;
  const tag = result.committed && result.committed.tag ? result.committed : null;
  const tagged = tag && (tag.version === "0" ? `tag ${tag.tag} removed` : `tag ${tag.tag} of version ${tag.version}`);
  const steps = [
    ["proposed", proposed && (proposed.app_id ? `${proposed.app_id}:${proposed.batch_id}, ` : "") + (proposed.operation || "claim")],
    ["in the log", at && `${at.topic}/${at.partition}@${at.offset}`],
    [kind === "rejected" || kind === "invalid" ? "refused" : "folded", kind || (explanation.state === "committed" ? "committed" : null)],
    ["published", explanation.committed_in ? `version ${explanation.committed_in}` : tagged],
    ["answered", explanation.outcome ? explanation.state : null],
    ...(explanation.undone ? [["undone", `version ${explanation.rolled_back_by}`]] : []),
  ];
  const facts = [
    ["state", explanation.undone ? make("span", { class: "kind rejected" }, `${explanation.state}, ${explanation.undone}`)
      : make("span", { class: `kind ${explanation.state}` }, explanation.state)],
    ["outcome", kind === "invalid" ? `${result.invalid.message} ${result.invalid.hint}` : conflict ? conflict.message : null],
    ["conflicts with", conflict && conflict.other_version !== "0" ? `version ${conflict.other_version} (${conflict.other_operation})` : null],
    ["fragments", conflict && chips(conflict.fragment_ids)], ["fields", conflict && chips(conflict.field_ids)], ["keys", conflict && chips(conflict.keys)],
    ["author", explanation.author && format.author(explanation.author)],
    ["built on", proposed && proposed.read_version ? `version ${proposed.read_version}` : null],
    ["time in the log", explanation.logged_at], ["size", proposed ? bytes(proposed.bytes) : null], ["uuid", proposed && proposed.uuid],
    ["version", version ? `${version.version}, ${version.operation}, ${count(version.entries)} entries, ${version.timestamp}` : null],
    ["proposals before it", explanation.state === "waiting" ? count(explanation.before_it) : null],
    ["known from", explanation.told_by], ["what to do", explanation.advice], ["not searched", explanation.not_looked_at.join("; ")],
  ];
  return [
    make("ol", { class: "path", "aria-label": "the path of the proposal" }, steps.map(([name, text]) =>
      make("li", { class: text ? null : "none" }, make("strong", {}, name), make("div", {}, text || "–")))),
    make("dl", {}, facts.filter(([, text]) => text).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)])),
    ...evidence(explanation.evidence),
    make("p", {}, "The same in a terminal:"), make("pre", {}, make("code", {}, words(explanation.command))),
  ];
}

/** Returns where a refused proposal met another change: its fragments with the rows in conflict, and its fields. */
function evidence(where) {
  if (!where) return [];
  const [read, judged] = where.versions;
  const others = { changed: "deleted rows", removed: "removed the fragment", added: "added the fragment", unknown: "not known" };
  const rows = (found) => (found ? count(found.rows) : "–");
  return [
    make("h2", {}, "Where they conflict"),
    where.fragments.length ? grid(`fragments that this proposal and others changed after version ${read}, up to version ${judged}`, [
      ["fragment", (each) => each.name], ["rows", (each) => count(each.rows), true],
      ["changed by others", (each) => (each.state === "changed" && !each.others ? "changed it, but deleted no rows" : `${rows(each.others)}: ${others[each.state]}`)],
      ["by this proposal", (each) => (each.ours ? rows(each.ours) : "the log does not say which")],
      ["by both", (each) => (each.both ? rows(each.both) : "the fragment as a whole")],
      ["where in the fragment", conflictBar],
    ], where.fragments) : null,
    where.fragments.length ? make("p", { class: "faint" }, "A bar is a fragment from its first row to its last. Upper half: rows that others changed. ",
      "Lower half: rows that this proposal changes. Full height: rows in conflict.",
      where.left_out ? ` ${count(where.left_out)} more fragments are not drawn.` : "") : null,
    where.fields.length ? make("p", {}, "Fields in conflict: ", chips(where.fields)) : null,
    where.fragments.length || where.fields.length || where.note ? null : make("p", {}, "The conflict is with the table or the version as a whole, not with single fragments or fields."),
    where.note ? make("p", { class: "faint" }, where.note) : null,
  ].filter(Boolean);
}

/** Returns a fragment as a bar with the rows that others changed, that the proposal changes, and that both did. */
function conflictBar(fragment) {
  const scale = 300 / Math.max(1, fragment.cells);
  const marks = (found, y, height, kind) => (found ? found.cells : []).map(([start, end]) =>
    drawn("rect", { x: start * scale, y, width: Math.max(2, (end - start) * scale), height, class: kind }));
  const both = fragment.both ? marks(fragment.both, 1, 22, "both") : [drawn("rect", { x: 0, y: 1, width: 300, height: 22, class: "both whole" })];
  const shares = (found) => (found && fragment.cells ? found.cells.slice(0, 5).map(([start, end]) =>
    `${Math.round((start / fragment.cells) * 100)} to ${Math.round((end / fragment.cells) * 100)} %`).join(", ") + (found.cells.length > 5 ? " and more" : "") : "");
  const where = shares(fragment.both);
  const label = fragment.both ? `rows in conflict in fragment ${fragment.name}: ${where ? `at ${where} of its rows` : count(fragment.both.rows)}`
    : `fragment ${fragment.name}, in conflict as a whole`;
  return drawn("svg", { viewBox: "-1 0 302 24", class: "conflict", role: "img", "aria-label": label },
    drawn("rect", { x: 0, y: 1, width: 300, height: 22, class: "outline" }),
    ...marks(fragment.others, 2, 10, "others"), ...marks(fragment.ours, 12, 10, "ours"), ...both);
}

/** Returns an address whose lines end behind a slash. */
function parts(uri) {
  return uri.split(/(?<=\/)/).flatMap((part) => [part, make("wbr")]);
}

/** Returns a command whose lines end between its words only. */
function words(command) {
  return command.split(" ").flatMap((word, index) => [index ? " " : "", make("span", { class: "word" }, word)]);
}

function chips(ids) {
  if (!ids || !ids.length) return null;
  const shown = ids.slice(0, 50).map((id) => make("span", { class: "chip" }, id));
  return make("span", {}, shown, ids.length > 50 ? ` and ${count(ids.length - 50)} more` : "");
}

/** Returns the dead letters with what to do about each. Those up to the time `seen` are marked as seen. */
export function letters(page, seen) {
  if (!page.letters.length) return make("p", {}, "No proposal was refused, as far as the topic of dead letters shows.");
  return make("div", {}, page.left_out ? make("p", { class: "faint" }, `${count(page.left_out)} older ones are not shown; lakefold redrive lists all.`) : null,
    make("p", {}, Object.entries(page.reasons).map(([reason, number]) => make("span", { class: "chip" }, `${shortened(reason, 80)} (${count(number)})`))),
    grid("refused proposals, the newest first", [
      ["time", (letter) => make("div", {}, time(format.millis(letter.time)), letter.time > seen ? make("span", { class: "chip" }, "new") : null)],
      ["table", (letter) => (letter.table ? link(parts(letter.table), "table", { uri: letter.table }) : "–"), "medium"],
      ["proposal", (letter) => link(letter.app_id ? `${letter.app_id}:${letter.batch_id}` : letter.uuid || "not a proposal", "proposal", {
        uri: letter.table, branch: letter.branch, proposal: `${letter.position.topic}/${letter.position.partition}@${letter.position.offset}` })],
      ["operation", (letter) => letter.operation || "–"],
      ["reason", (letter) => letter.reason, "wide"],
      ["what to do", (letter) => make("div", {}, letter.hint || letter.obstacle || "correct the cause, then send it again:",
        letter.command ? make("div", {}, make("code", {}, words(letter.command))) : null), "wide"],
    ], page.letters, (letter) => (letter.time > seen ? "" : "faint")));
}

/** Returns who folds a partition: the member of the group that has it, or the committer that took it over last. */
function folder(row, committer) {
  const member = [row.committer_name, row.committer].filter(Boolean).join(" at ");
  if (member || !row.reporter) return member || ((committer.partitions || []).includes(row.partition) ? asked(committer) : "–");
  return `${row.reporter} (took it over last)`;
}

/** Returns the committers that took over the partitions which no member of the group has. */
function reporters(overview) {
  const committer = overview.committer;
  const own = overview.partitions.filter((row) => row.reporter && !row.committer && !row.committer_name);
  const names = [...new Set(own.map((row) => row.reporter))].sort();
  if (!names.length) return null;
  const numbers = (name) => own.filter((row) => row.reporter === name).map((row) => row.partition);
  const isAsked = (name) => !committer.problem && numbers(name).some((number) => (committer.partitions || []).includes(number));
  return grid("committers with fixed partitions", [
    ["name", (name) => name], ["took over last", (name) => numbers(name).join(", ")],
    ["state", (name) => (isAsked(name) ? committer.ready ? "ready" : "not ready" : "unknown: not asked here")]], names);
}

/** Returns the partitions of the log and the committers. */
export function log(overview) {
  const committer = overview.committer;
  return [
    make("h1", {}, `Log: ${overview.topic || "not known yet"}`),
    make("p", { class: "lines" }, committer.problem || `The committer at ${asked(committer)} says: ${committer.state}`),
    otherCommitters(overview) ? make("p", {}, otherCommitters(overview)) : null,
    grid(`partitions; group ${overview.group || ""}`, [
      ["partition", (row) => count(row.partition), true], ["oldest offset", (row) => count(row.low), true],
      ["end", (row) => count(row.high), true], ["answered up to", (row) => count(row.committed), true],
      ["lag", (row) => count(row.lag), true], ["folded by", (row) => folder(row, committer)]], overview.partitions),
    make("p", { class: "faint" }, "The brokers name the committers that share the partitions. ",
      "Others (--partitions all, with numbers, or ordinal) are in no group: of them the page names the one that took a partition over last, by its host and HTTP port. ",
      "Whether it still runs is known only of the one that was asked: open the page of each, or give its --http-host and --http-port."),
    members(overview),
    reporters(overview),
    make("h2", {}, "Brokers"),
    make("p", {}, `cluster ${overview.cluster_id || "–"}: `, (overview.brokers || []).map((broker) => make("span", { class: "chip" }, `${broker.id}: ${broker.address}`))),
    make("h2", {}, `Parked tables of the committer at ${asked(committer)}`),
    committer.parked.length ? make("ul", {}, committer.parked.map((each) => make("li", {}, link(each.table, "table", { uri: each.table }), parked([each]))))
      : make("p", { class: "faint" }, committer.problem ? "Not known." : "None."),
  ].filter(Boolean);
}
