// Shows the view that the address names, and fetches it again when the server reports a change.

import { address, route } from "./format.js";
import * as views from "./views.js";

const { make } = views;
const PAGE = 50;
const REFRESH_MS = 1000;
const PLOTS_MS = 10000;
// Tags, branches and the progress of consumers are files beside the table, which no outcome reports.
const FILES_MS = 5000;
const SEARCHED = 200;
// The time of the newest dead letter that this browser has marked as seen.
const SEEN = "lakefold.seen-letters";

const main = document.getElementById("main");
const live = document.getElementById("live");
const problem = document.getElementById("problem");
const footer = document.getElementById("footer");

// What is shown now. A view that is replaced while it is fetched is dropped by its number.
let shown = { number: 0, refresh: null, uri: null, follows: false, plottedAt: 0 };
let waiting = null;
let updating = Promise.resolve();

/** Returns the answer to a request. Throws an error with the server's message. */
async function fetched(name, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]));
  const answer = await fetch(`/api/${name}?${query}`, { headers: { Accept: "application/json" } });
  const document_ = answer.headers.get("content-type") === "application/json" ? await answer.json() : { error: { message: await answer.text() } };
  if (document_.error) throw new Error([document_.error.message, document_.error.hint].filter(Boolean).join(": "));
  return document_;
}

/** Returns what is shown until the first answer. */
function busy(text) {
  return make("p", { class: "busy faint" }, text);
}

function title(text) {
  document.title = `${text} – Lakefold console`;
}

function report(overview) {
  const problems = views.problems(overview);
  problem.hidden = problems.length === 0;
  problem.textContent = problems.join(" · ");
  footer.textContent = `Lakefold ${overview.release}, tables below ${overview.roots.join(", ")}. This page changes nothing.`;
}

/** Returns the choice of the time that plots show. */
function plotRange() {
  const range = make("select", { "aria-label": "Time of the plots" }, [["15", "15 minutes"], ["60", "hour"], ["360", "6 hours"]].map(([value, text]) => make("option", { value }, text)));
  range.value = "60";
  range.addEventListener("change", redraw);
  return make("div", { class: "tools" }, make("label", {}, "Plots of the last ", range));
}

/** Draws the plots of all tables, or of one, if they were not drawn lately. */
async function plot(number, range, plots, only = {}) {
  if (Date.now() - shown.plottedAt <= PLOTS_MS || !window.uPlot) return;
  shown.plottedAt = Date.now();
  const series = await fetched("activity", { ...only, minutes: range.querySelector("select").value });
  if (shown.number === number) views.plots(series, window.uPlot, plots);
}

async function tables(parameters, number) {
  title("Tables");
  const state = { offset: Number(parameters.offset) || 0, search: parameters.search || "", order: parameters.order || "recent" };
  const figures = make("div"), plots = make("div", { class: "plots" }), list = make("div");
  const search = make("input", { type: "search", "aria-label": "Search tables by name", placeholder: "Search tables", value: state.search });
  const order = make("select", { "aria-label": "Order" }, make("option", { value: "recent" }, "last outcome first"), make("option", { value: "name" }, "by name"));
  order.value = state.order;
  const range = plotRange();
  const back = make("button", { type: "button" }, "Previous"), next = make("button", { type: "button" }, "Next");
  const go = (offset) => { location.hash = address("tables", { offset: offset || "", search: search.value, order: order.value === "recent" ? "" : order.value }); };
  search.addEventListener("change", () => go(0));
  order.addEventListener("change", () => go(0));
  back.addEventListener("click", () => go(Math.max(0, state.offset - PAGE)));
  next.addEventListener("click", () => go(state.offset + PAGE));
  main.replaceChildren(make("h1", {}, "Tables"), figures, make("div", { class: "tools" }, search, order, back, next), list,
    range, plots);

  let seen = "";
  const refresh = async (changed) => {
    const [overview, page] = await Promise.all([fetched("overview"), fetched("tables", { ...state, limit: PAGE })]);
    if (shown.number !== number) return;
    report(overview);
    figures.replaceChildren(...[views.overviewCards(overview), views.committerChanges(overview.committer)].filter(Boolean));
    const text = JSON.stringify(page);
    // What has the focus stays if nothing has changed.
    if (text !== seen) list.replaceChildren(views.tableList(page, changed));
    seen = text;
    back.disabled = state.offset === 0;
    next.disabled = state.offset + PAGE >= page.total;
    await plot(number, range, plots);
    if (page.tables.some((row) => row.loading)) later(new Set());
  };
  return { refresh, uri: null, follows: true };
}

async function table(parameters, number) {
  const uri = parameters.uri || "", branch = parameters.branch || "";
  title(uri);
  const head = make("div"), history = make("div"), sizes = make("div"), columns = make("div"), refs = make("div"), readers = make("div"), kept = make("div");
  const range = plotRange(), plots = make("div", { class: "plots" });
  const add = make("button", { type: "button" }, "Size of old versions");
  add.addEventListener("click", async () => {
    add.disabled = true;
    try {
      const document_ = await fetched("kept", { uri });
      if (shown.number === number) kept.replaceChildren(views.kept(document_));
    } catch (error) {
      kept.replaceChildren(make("p", { class: "rejected", role: "alert" }, error.message));
    }
    add.disabled = false;
  });
  const older = make("button", { type: "button" }, "Older versions"), newest = make("button", { type: "button" }, "Newest versions");
  const lookup = make("form", { class: "tools" }, make("label", {}, "Find a proposal: ",
    make("input", { name: "proposal", placeholder: "app:batch, uuid or offset", required: true })), make("button", {}, "Explain"));
  lookup.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address("proposal", { uri, branch, proposal: new FormData(lookup).get("proposal") });
  });
  const narrowed = { app: parameters.app || "", operation: parameters.operation || "" };
  const narrow = make("form", { class: "tools" }, ["app", "operation"].map((name) => make("label", {}, `Only ${name}: `,
    make("input", { name, value: narrowed[name], size: 14 }))), make("button", {}, "Show"));
  narrow.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address("table", { uri, branch, ...Object.fromEntries(new FormData(narrow)) });
  });
  const parts = [lookup, make("h2", {}, branch ? `Versions of branch ${branch}` : "Versions"), narrow, history, make("div", { class: "tools" }, newest, older),
    range, plots, make("h2", {}, "Fragments"), sizes, make("h2", {}, "Tags and branches"), refs, make("h2", {}, "Consumers"), readers,
    make("h2", {}, "Old versions"), make("div", { class: "tools" }, add), kept, make("h2", {}, "Schema"), columns];
  main.replaceChildren(make("h1", {}, uri), busy("reading…"));
  const last = parameters.last;
  newest.disabled = last === undefined;
  newest.addEventListener("click", () => { location.hash = address("table", { uri, branch, ...narrowed }); });
  let listed, seen = "", known = null, schemas = null;
  const more = make("button", { type: "button" }, "Search older versions for changes");
  const showSchema = (current) => {
    columns.replaceChildren(...views.schema(current, schemas));
    more.hidden = schemas.older === null;
    columns.append(make("div", { class: "tools" }, more));
    more.onclick = async () => {
      more.disabled = true;
      try {
        const page = await fetched("schemas", { uri, last: schemas.older, most: SEARCHED });
        schemas = { ...page, searched_to: schemas.searched_to, changes: [...schemas.changes, ...page.changes] };
        if (shown.number === number) showSchema(current);
      } catch (error) {
        columns.append(make("p", { class: "rejected", role: "alert" }, error.message));
      }
      more.disabled = false;
    };
  };

  const refresh = async () => {
    const current = await fetched("table", { uri });
    if (shown.number !== number) return;
    if (head.isConnected) await plot(number, range, plots, { uri });
    const text = JSON.stringify(current);
    // What has the focus stays if nothing has changed.
    if (text === seen || shown.number !== number) return;
    const shownBranch = current.branches.find((each) => each.name === branch);
    const newestOf = branch ? (shownBranch ? shownBranch.version : null) : current.version;
    const from = last === undefined ? newestOf : last;
    const page = listed === newestOf ? null : await fetched("versions", { uri, branch, ...narrowed, ...(from === null ? {} : { last: from }) });
    if (shown.number !== number) return;
    // The figures and the list are shown together, and are of the same version.
    if (!head.isConnected) main.replaceChildren(head, ...parts);
    head.replaceChildren(...views.tableHead(current).filter(Boolean));
    refs.replaceChildren(views.graph(current, uri));
    readers.replaceChildren(views.consumers(current));
    if (page) {
      history.replaceChildren(views.versions(page, uri, branch));
      older.disabled = page.older === null || page.older < 0;
      older.onclick = () => { location.hash = address("table", { uri, branch, ...narrowed, last: page.older }); };
      listed = newestOf;
    }
    if (known !== current.version) {
      const [fragments, changes] = await Promise.all([fetched("fragments", { uri }), fetched("schemas", { uri })]);
      if (shown.number !== number) return;
      sizes.replaceChildren(...views.fragments(fragments));
      schemas = joined(changes, schemas);
      showSchema(current);
      known = current.version;
    }
    seen = text;
    await plot(number, range, plots, { uri });
  };
  return { refresh, uri, follows: true };
}

/** Returns the newest changes of a schema with those of older versions that were found before, if no version is between. */
function joined(newest, before) {
  if (!before || before.searched_to < newest.searched_from || before.searched_from >= newest.searched_from) return newest;
  const older = before.changes.filter((change) => change.version <= newest.searched_from);
  return { ...before, searched_to: newest.searched_to, changes: [...newest.changes, ...older] };
}

async function version(parameters, number) {
  const { uri = "", branch = "" } = parameters, at = Number(parameters.version);
  title(`Version ${at} of ${uri}`);
  const body = make("div", {}, busy("reading…")), show = make("button", { type: "button", hidden: true }, "Show rows");
  const step = (by, text) => views.link(text, "version", { uri, branch, version: Math.max(0, at + by) });
  main.replaceChildren(make("h1", {}, `Version ${at}`), make("p", {}, "of ", views.link(uri, "table", { uri, branch })),
    make("p", { class: "tools" }, step(-1, "the version before"), step(1, "the next version")), body, show);
  let rows = 0, isKnown = false;
  const refresh = async () => {
    if (isKnown) return;
    const document_ = await fetched("version", { uri, branch, version: at, ...(rows ? { rows } : {}) });
    const { shows_rows: showsRows } = await fetched("overview");
    if (shown.number !== number) return;
    isKnown = true;
    body.replaceChildren(...views.version(document_, uri, branch));
    show.hidden = !showsRows || rows || !document_.diff;
  };
  show.addEventListener("click", () => { rows = 1; isKnown = false; later(new Set()); });
  return { refresh, uri };
}

async function proposal(parameters, number) {
  title(`Proposal ${parameters.proposal || ""}`);
  const body = make("div", {}, busy("searching…"));
  main.replaceChildren(make("h1", {}, `Proposal ${parameters.proposal || ""}`), make("p", {}, "for ", views.link(parameters.uri || "", "table", { uri: parameters.uri })), body);
  let settled = false;
  const refresh = async () => {
    if (settled) return;
    const explanation = await fetched("proposal", parameters);
    if (shown.number !== number) return;
    settled = explanation.state !== "waiting";
    body.replaceChildren(...views.proposal(explanation));
  };
  return { refresh, uri: parameters.uri };
}

async function letters(_, number) {
  title("Dead letters");
  const body = make("div", {}, busy("reading…")), mark = make("button", { type: "button", hidden: true }, "Mark all as seen");
  main.replaceChildren(make("h1", {}, "Dead letters"), make("p", { class: "faint" }, "Proposals that were refused: they changed nothing, and their rows are in no table."),
    make("div", { class: "tools" }, mark), body);
  let known, page;
  const draw = () => {
    const seen = localStorage.getItem(SEEN) || "";
    body.replaceChildren(views.letters(page, seen));
    mark.hidden = !page.letters.some((letter) => letter.time > seen);
  };
  mark.addEventListener("click", () => { localStorage.setItem(SEEN, page.letters[0].time); draw(); });
  const refresh = async (_changed, overview) => {
    const counted = overview ? overview.dead_letters : null;
    if (counted === known) return;
    known = counted;
    page = await fetched("dead-letters");
    if (shown.number === number) draw();
  };
  return { refresh, uri: null };
}

async function log(_, number) {
  title("Log and committers");
  const refresh = async (_changed, overview) => {
    const current = overview || await fetched("overview");
    if (shown.number !== number) return;
    report(current);
    main.replaceChildren(...views.log(current));
  };
  return { refresh, uri: null };
}

const VIEWS = { tables, table, version, proposal, "dead-letters": letters, log };

/** Shows the view of the address. */
async function show() {
  const { name, parameters } = route(location.hash);
  const number = shown.number + 1;
  shown = { number, refresh: null, uri: null, follows: false, plottedAt: 0 };
  for (const each of document.querySelectorAll("nav a")) {
    if (route(each.hash).name === (["table", "version", "proposal"].includes(name) ? "tables" : name)) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const view = VIEWS[name];
  if (!view) {
    main.replaceChildren(make("h1", {}, "There is no such page"));
    return;
  }
  const { refresh, uri, follows } = await view(parameters, number);
  shown.refresh = refresh;
  shown.uri = uri;
  shown.follows = follows;
  await update(new Set(), null);
}

async function update(changed, overview) {
  const { number, refresh } = shown;
  if (!refresh) return;
  try {
    await refresh(changed, overview);
    for (const old of main.querySelectorAll(".failure")) old.remove();
  } catch (error) {
    if (shown.number !== number) return;
    for (const old of main.querySelectorAll(".failure, .busy")) old.remove();
    main.prepend(make("p", { class: "failure rejected", role: "alert" }, error.message));
  }
}

/** Updates the view soon. Several changes until then are one update. */
function later(changed, overview = null) {
  if (waiting) {
    for (const uri of changed) waiting.changed.add(uri);
    waiting.overview = overview || waiting.overview;
    return;
  }
  waiting = { changed: new Set(changed), overview };
  setTimeout(async () => {
    // If the server is slow, what changes meanwhile is one update after this one.
    await updating;
    const now = waiting;
    waiting = null;
    updating = update(now.changed, now.overview);
  }, REFRESH_MS / 2);
}

function listen() {
  const source = new EventSource("/api/events");
  source.addEventListener("open", () => { live.textContent = "live"; live.className = "live on"; });
  source.addEventListener("error", () => { live.textContent = "not connected, trying again"; live.className = "live off"; });
  source.addEventListener("message", (message) => {
    const event = JSON.parse(message.data);
    report(event.overview);
    if (!shown.uri || event.more || event.tables.includes(shown.uri)) later(event.tables, event.overview);
  });
}

// The address names the view, so this link must not change it.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
// A plot keeps the colours and the width that it was drawn in.
const redraw = () => { shown.plottedAt = 0; later(new Set()); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.addEventListener("resize", redraw);
window.addEventListener("hashchange", () => { show(); main.focus(); });
setInterval(() => { if (shown.follows && !document.hidden) later(new Set()); }, FILES_MS);
show();
listen();
