// Makes every view of the console from documents on stdin, in a page of our own that has only what views use.
// Prints the text of each view, its links, and the kinds of elements in it: node console_views.mjs FOLDER < JSON

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

class Node_ {}

class Text extends Node_ {
  constructor(text) { super(); this.textContent = String(text); }
}

class Element extends Node_ {
  constructor(tag) { super(); this.tag = tag; this.attributes = {}; this.children = []; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  get firstChild() { return this.children[0]; }
  get textContent() { return this.children.map((child) => child.textContent).join(" "); }
  *all() {
    yield this;
    for (const child of this.children) if (child instanceof Element) yield* child.all();
  }
}

globalThis.Node = Node_;
globalThis.document = {
  documentElement: null,
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
  createTextNode: (text) => new Text(text),
};
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "#000" });

const drawn = [];
class Plot {
  constructor(options, columns) { drawn.push({ names: options.series.length, columns: columns.length, points: columns[0].length }); }
}

const folder = pathToFileURL(`${process.argv[2]}/`);
const views = await import(new URL("views.js", folder));
const given = JSON.parse(readFileSync(0, "utf8"));
const plots = new Element("div");
views.plots(given.activity, Plot, plots);
const made = {
  overview: [views.overviewCards(given.overview), views.committerChanges(given.overview.committer)],
  uncounted: [...views.problems(given.uncounted).map((text) => new Text(text)), views.overviewCards(given.uncounted)],
  shared: [views.overviewCards(given.shared), ...views.log(given.shared)],
  elsewhere: [views.overviewCards(given.elsewhere)],
  alone: views.log(given.alone),
  kept: [views.kept(given.kept)],
  tables: [views.tableList(given.tables, new Set([given.tables.tables[0].table]))],
  none: [views.tableList({ total: 0, tables: [], problem: "" }, new Set())],
  plots: [plots],
  table: views.tableHead(given.table),
  versions: [views.versions(given.versions, given.table.table, "")],
  version: views.version(given.version, given.table.table, ""),
  fragments: views.fragments(given.fragments),
  graph: [views.graph(given.table, given.table.table)],
  consumers: [views.consumers(given.table)],
  schema: views.schema(given.table, given.schemas),
  proposal: views.proposal(given.proposal),
  tag: views.proposal(given.tag),
  letters: [views.letters(given.letters)],
  log: views.log(given.overview),
};
const answer = {};
for (const [name, parts] of Object.entries(made)) {
  const root = new Element("main");
  root.append(...parts.filter(Boolean));
  const elements = [...root.all()];
  answer[name] = {
    text: root.textContent,
    tags: [...new Set(elements.map((element) => element.tag))],
    attributes: [...new Set(elements.flatMap((element) => Object.keys(element.attributes)))],
    labels: elements.filter((element) => "aria-label" in element.attributes).map((element) => element.attributes["aria-label"]),
    classes: elements.filter((element) => "class" in element.attributes).map((element) => element.attributes.class),
    links: elements.filter((element) => "href" in element.attributes).map((element) => element.attributes.href),
  };
}
console.log(JSON.stringify({ ...answer, drawn }));
