// How figures, times and addresses are written. Nothing here touches the page, so that it is tested alone.

const COUNT = new Intl.NumberFormat("en");

/** Returns a whole number with separators, or a dash if it is not known. */
export function count(number) {
  return number === null || number === undefined ? "–" : COUNT.format(number);
}

/** Returns a number of bytes with a unit. */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

/** Returns a rate per second with two digits that count. */
export function rate(number) {
  if (!number) return "0";
  return number >= 10 ? COUNT.format(Math.round(number)) : number.toPrecision(2);
}

/** Returns a duration in seconds as people read it. */
export function seconds(number) {
  if (number === null || number === undefined) return "–";
  if (number < 0.9995) return `${Math.round(number * 1000)} ms`;
  if (number < 120) return `${number.toFixed(number < 10 ? 2 : 0)} s`;
  if (number < 7200) return `${Math.round(number / 60)} min`;
  return number < 172800 ? `${Math.round(number / 3600)} h` : `${Math.round(number / 86400)} days`;
}

/** Returns how long ago a time was. Both are in milliseconds since 1970. */
export function ago(then, now) {
  const passed = Math.max(0, (now - then) / 1000);
  return passed < 1 ? "now" : `${passed < 120 ? `${Math.round(passed)} s` : seconds(passed)} ago`;
}

/** Returns the time of the day in UTC, with the date if it isn't that of `now`. Both are in milliseconds since 1970. */
export function clock(then, now) {
  const text = new Date(then).toISOString(), day = text.slice(0, 10);
  return `${day === new Date(now).toISOString().slice(0, 10) ? "" : `${day} `}${text.slice(11, 19)}Z`;
}

/** Returns the milliseconds since 1970 of a time in ISO 8601, which may have microseconds. */
export function millis(iso) {
  return Date.parse(iso);
}

/** Returns the numbers and names of groups of fragments, without the empty groups at both ends. */
export function groups(bounds, counts, name) {
  const all = counts.map((number, index) => ({
    name: name(index === 0 ? null : bounds[index - 1], index < bounds.length ? bounds[index] : null),
    number,
  }));
  const used = all.map((group, index) => (group.number ? index : -1)).filter((index) => index >= 0);
  return used.length ? all.slice(used[0], used[used.length - 1] + 1) : [];
}

/** Returns a number in short form: 10,000 is 10k. */
export function short(number) {
  if (number >= 1e6) return `${number / 1e6}M`;
  return number >= 1e3 ? `${number / 1e3}k` : `${number}`;
}

/** Returns the page that an address names: its name, and its parameters. */
export function route(hash) {
  const [path, query] = hash.replace(/^#/, "").split("?");
  const parameters = Object.fromEntries(new URLSearchParams(query || ""));
  const name = path.replace(/^\//, "") || "tables";
  return { name, parameters };
}

/** Returns the address of a page. */
export function address(name, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return `#/${name === "tables" ? "" : name}${query ? `?${query}` : ""}`;
}

/** Returns the operation of a version; if its entries had several, each with their number. Entries name it best. */
export function operation(version) {
  if (version.move) return `${version.operation} (${version.move.why})`;
  const kinds = Object.entries(version.operations);
  return kinds.length <= 1 ? (kinds[0]?.[0] ?? version.operation) : kinds.map(([name, number]) => `${name} x${number}`).join(", ");
}

/** Returns the batches of a version by app, such as "loader:12-14". */
export function batches(version) {
  return version.apps.map((app) =>
    app.first_batch === app.last_batch ? `${app.app_id}:${app.first_batch}` : `${app.app_id}:${app.first_batch}-${app.last_batch}`);
}

/** Returns who sent a proposal and why, such as "anna@ingest-7 (load.py): late rows". */
export function author(each) {
  const inside = [each.program, each.query && `query ${each.query}`].filter(Boolean).join(", ");
  const who = each.name && inside ? `${each.name} (${inside})` : each.name || inside;
  return who && each.message ? `${who}: ${each.message}` : who || each.message;
}

/** Returns the range of offsets of a version, or a dash. */
export function positions(version) {
  const at = version.positions;
  if (!at) return "–";
  const end = at.first_offset === at.last_offset ? "" : `-${at.last_offset}`;
  return `${at.topic}/${at.partition}@${at.first_offset}${end}`;
}

/** Returns what was added and removed, as "+5 -2". */
export function change(added, removed) {
  if (added === null && removed === null) return "–";
  return `+${count(added || 0)}${removed ? ` -${count(removed)}` : ""}`;
}
