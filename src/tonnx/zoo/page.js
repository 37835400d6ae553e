"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const MOST = 2000;  // rows that a table shows at once: a browser with 100,000 cells crawls

function element(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== null && text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function bytes(count) {
  let size = count;
  for (const unit of ["B", "kB", "MB"]) {
    if (size < 1000) return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return `${size.toFixed(2)} GB`;
}

const FIGURES = {
  status: (value) => value,
  size: bytes,
  nodes: (value) => String(value),
  seconds: (value) => `${value.toFixed(1)} s`,
  difference: (value) => (value === 0 ? "0" : value.toExponential(1)),
  latency: (value) => `${(value * 1e3).toPrecision(3)} ms`,
  peak: bytes,
};
const show = (row, figure) => (row[figure] === null || row[figure] === undefined ? "–" : FIGURES[figure](row[figure]));
const look = (row) => (row.status === "ok" ? "ok" : row.status === "not run" ? "missing" : "broken");

const sorted = { column: "", down: false };
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;  // what has no figure comes last, whichever way
  if (b === null || b === undefined) return -1;
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return sorted.down ? -order : order;
}

function wanted() {
  const part = byId("search").value.toLowerCase(), status = byId("status").value;
  return data.rows.filter((row) => row.model.toLowerCase().includes(part) && (status === "all" || row.status === status));
}

function heading(label, column, numeric) {
  const mark = sorted.column === column ? (sorted.down ? " ▾" : " ▴") : "";
  const th = element("th", label + mark, { class: numeric ? "sort n" : "sort", "data-column": column });
  th.onclick = () => {
    sorted.down = sorted.column === column && !sorted.down;
    sorted.column = column;
    draw();
  };
  return th;
}

function linked(row, text) {
  const target = row.page || row.log;
  return target ? element("a", text, { href: encodeURIComponent(target) }) : document.createTextNode(text);
}

function drawCells(rows) {
  const figure = byId("figure").value;
  const opsets = [...new Set(data.rows.map((row) => row.opset))].sort((a, b) => (a ?? 99) - (b ?? 99));
  const named = (opset) => (opset === null ? "opset of the target" : `opset ${opset}`);
  const models = new Map();
  for (const row of rows) {
    if (!models.has(row.model)) models.set(row.model, {});
    models.get(row.model)[row.opset] = row;
  }
  let lines = [...models];
  if (sorted.column === "model") lines.sort((a, b) => compare(a[0], b[0]));
  else if (sorted.column.startsWith("opset ")) {
    const opset = sorted.column.slice(6);
    lines.sort((a, b) => compare(a[1][opset]?.[figure], b[1][opset]?.[figure]));
  }
  const table = byId("cells");
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  head.append(heading("model", "model", false), ...opsets.map((opset) => heading(named(opset), `opset ${opset}`, true)));
  const body = table.createTBody();
  for (const [model, cells] of lines.slice(0, MOST)) {
    const line = body.insertRow();
    line.append(element("td", model));
    for (const opset of opsets) {
      const row = cells[opset];
      const cell = element("td", null, { class: `cell ${row ? look(row) : "missing"}` });
      if (row) {
        cell.append(linked(row, row.status === "ok" ? show(row, figure) : row.status));
        cell.title = row.error || row.job;
      }
      line.append(cell);
    }
  }
}

function drawJobs(rows) {
  const columns = [["model", 0], ["opset", 1], ["status", 0], ["size", 1], ["nodes", 1], ["seconds", 1], ["difference", 1], ["latency", 1], ["peak", 1]];
  const lines = [...rows];
  if (columns.some(([column]) => column === sorted.column)) lines.sort((a, b) => compare(a[sorted.column], b[sorted.column]));
  const table = byId("jobs");
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  head.append(...columns.map(([column, numeric]) => heading(column, column, numeric)), element("th", ""));
  const body = table.createTBody();
  for (const row of lines.slice(0, MOST)) {
    const line = body.insertRow();
    for (const [column, numeric] of columns) {
      const cell = element("td", null, { class: column === "status" ? look(row) : numeric ? "n" : "" });
      const text = column in FIGURES ? show(row, column) : String(row[column] ?? "–");
      cell.append(column === "model" || column === "status" ? linked(row, text) : text);
      line.append(cell);
    }
    const told = element("td", row.error, { class: "told" });
    if (row.error) told.append(element("code", row.command));
    line.append(told);
  }
  const cut = lines.length > MOST ? `, the first ${MOST} of which are shown` : "";
  byId("shown").textContent = `${rows.length} of ${data.rows.length} jobs${cut}`;
}

function draw() {
  const rows = wanted();
  drawCells(rows);
  drawJobs(rows);
}

function summary() {
  const counts = {};
  for (const row of data.rows) counts[row.status] = (counts[row.status] || 0) + 1;
  const facts = [["jobs", data.rows.length], ...Object.entries(counts)];
  const seconds = data.rows.reduce((sum, row) => sum + (row.seconds || 0), 0);
  const size = data.rows.reduce((sum, row) => sum + (row.size || 0), 0);
  facts.push(["of work", seconds < 6000 ? `${seconds.toFixed(0)} s` : `${(seconds / 3600).toFixed(1)} h`], ["of files", bytes(size)]);
  for (const [name, version] of Object.entries(data.versions)) facts.push([name, version]);
  for (const [label, value] of facts) {
    const fact = element("div", null, { class: "fact" });
    fact.append(element("b", value, label === "ok" ? { class: "good" } : counts[label] && label !== "not run" ? { class: "bad" } : {}), element("span", label));
    byId("facts").append(fact);
  }
  for (const figure of Object.keys(FIGURES)) byId("figure").append(element("option", figure));
  for (const status of ["all", ...Object.keys(counts).sort()]) byId("status").append(element("option", status));
}

byId("theme").onclick = () => {
  const dark = document.documentElement.dataset.theme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
};
if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark";
for (const id of ["figure", "status"]) byId(id).onchange = draw;
byId("search").oninput = draw;
summary();
draw();
