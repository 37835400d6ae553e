"use strict";
// Fills the page from its data.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) name in made ? made[name] = value : made.setAttribute(name, value);
  made.append(...children.filter(child => child !== null && child !== undefined && child !== false));
  return made;
};
const size = bytes => bytes < 1e3 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
const figure = number => number === null || number === undefined ? "–" : number === 0 ? "0" : Math.abs(number) < 1e-3 || Math.abs(number) >= 1e5 ? number.toExponential(2) : number.toPrecision(4);
const time = seconds => !seconds ? "–" : seconds >= 1 ? `${seconds.toFixed(2)} s` : seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;

// A table: columns are [title, function of a row, "n" for numbers].
function table(rows, columns, onRow) {
  const head = element("tr", {}, ...columns.map(([title, , kind]) => element("th", { className: kind || "" }, title)));
  const body = rows.map(row => {
    const line = element("tr", {}, ...columns.map(([, cell, kind]) => element("td", { className: kind || "" }, cell(row))));
    if (onRow) { line.style.cursor = "pointer"; line.addEventListener("click", () => onRow(row)); }
    return line;
  });
  return element("div", { className: "scroll" }, element("table", {}, columns.some(([title]) => title) && element("thead", {}, head), element("tbody", {}, ...body)));
}
const line = share => share > 0 && element("span", { className: "line", style: `width:${(share * 220).toFixed(1)}px` });

let view;
theme();
summary();
graph();
operators();
weights();
quantisation();
proof();
differences();
times();
bench();
navigation();

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = value => { document.documentElement.dataset.theme = value; view?.draw(); };
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => set(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
}

function navigation() {
  for (const section of document.querySelectorAll("main > section"))
    if (!section.hidden) $("nav").append(element("a", { href: `#${section.id}` }, section.querySelector("h2").textContent));
}

function summary() {
  const { file } = data;
  document.title = `${file.name} – tonnx report`;
  $("title").textContent = file.name;
  const verified = data.verification && data.verification.compared ? (data.verification.ok ? "✓ equal" : "✗ differs") : "not compared";
  const facts = [["opset", file.opset], ["IR", file.ir_version], ["nodes", Object.values(data.stages[data.stages.length - 1].operators).reduce((all, one) => all + one, 0)], ["parameters", file.parameters.toLocaleString("en")],
    ["weights", size(file.weights)], ["file", size(file.size)], ["verification", verified], ["made by", file.producer || "?"]];
  $("facts").append(...facts.map(([name, value]) => element("div", { className: "fact" }, element("b", {}, String(value)), element("span", {}, name))));
  const ports = [...data.inputs.map(port => ["input", port]), ...data.outputs.map(port => ["output", port])];
  $("ports").append(table(ports, [["", row => row[0]], ["name", row => row[1].name], ["type", row => element("code", {}, row[1].type)]]));
  $("notes").append(...data.notes.map(note => element("li", {}, note)));
}

// The graph

function graph() {
  const nodes = data.graph.nodes;
  view = new GraphView($("canvas"), data.graph, { selected: details, arranged: outline });
  const colours = { operator: () => null };
  if (data.times) { const top = Math.max(...data.times); colours.time = box => heat(sum(box, i => data.times[i]) / top); }
  if (data.differences) colours.difference = box => differenceColour(box);
  $("colour").append(...Object.keys(colours).map(name => element("option", {}, name)));
  $("colour").addEventListener("change", () => { view.colourOf = colours[$("colour").value]; view.draw(); });
  $("fit").addEventListener("click", () => view.fit());
  for (const [id, change] of [["deeper", h => h.deeper()], ["all", h => h.setAll(true)], ["none", h => h.setAll(false)]])
    $(id).addEventListener("click", () => { change(view.hierarchy); view.arrange(); view.fit(); });
  const text = nodes.map((node, i) => `${node[1]} ${data.graph.texts[node[0]]} ${view.hierarchy.home[i].path} ${data.graph.texts[node[6]]} ${node[3].map(v => data.graph.values.names[v] ?? "").join(" ")}`.toLowerCase());
  $("search").addEventListener("input", () => search(text));
  $("search").addEventListener("keydown", event => { if (event.key === "Enter") $("results").firstElementChild?.click(); });
}

function sum(box, of) { return box.members.reduce((total, i) => total + (of(i) || 0), 0); }
function heat(share) {
  const part = Math.sqrt(Math.min(1, Math.max(0, share)));
  return `hsl(${(220 - 220 * part).toFixed(0)} 65% ${(52 - 8 * part).toFixed(0)}%)`;
}
function differenceColour(box) {
  const seen = box.members.map(i => data.differences[i]).filter(Boolean);
  if (!seen.length) return "#8a919c";
  if (seen.some(entry => !entry[2])) return "#c62f2f";
  return heat(0.5 * Math.max(...seen.map(entry => Math.min(1, entry[1] ?? 1))));
}

function search(text) {
  const wanted = $("search").value.trim().toLowerCase();
  const results = $("results");
  results.replaceChildren();
  results.hidden = true;
  if (!wanted) { $("found").textContent = ""; return; }
  const found = [];
  text.forEach((entry, i) => { if (entry.includes(wanted)) found.push(i); });
  $("found").textContent = `${found.length} found`;
  results.hidden = !found.length;
  for (const i of found.slice(0, 200)) {
    const node = data.graph.nodes[i];
    const entry = element("li", {}, `${data.graph.texts[node[0]]} ${node[1] || `${view.hierarchy.home[i].path} #${i}`}`);
    entry.addEventListener("click", () => view.show(i));
    results.append(entry);
  }
}

// The modules as a list beside the picture; a branch is filled when it is opened.
function outline(current) {
  $("shown").textContent = `${current.shown.boxes.length} boxes of ${data.graph.nodes.length} nodes`;
  $("tree").replaceChildren(branch(current, current.hierarchy.root));
}
function branch(current, group) {
  const entries = [...group.groups.values()].map(child => {
    const twist = element("span", { className: "twist" }, child.size === 1 ? "" : child.open ? "▾" : "▸");
    if (child.size > 1) twist.addEventListener("click", () => current.toggle(child));
    const name = element("span", { className: "name", title: child.path }, child.name);
    name.dataset.path = child.path;
    name.addEventListener("click", () => {
      for (let at = child.parent; at; at = at.parent) at.open = true;
      current.arrange();
      const box = current.shown.boxes.find(found => found.group === child) || current.shown.of[firstNode(child)];
      current.select(box); current.centre(box);
    });
    return element("li", {}, twist, name, " ", element("span", { className: "dim" }, String(child.size)), child.open && child.size > 1 ? branch(current, child) : null);
  });
  return element("ul", {}, ...entries);
}

function details(box) {
  const panel = $("details");
  panel.hidden = !box;
  panel.replaceChildren();
  if (!box) return;
  const { graph } = data;
  const pair = (name, value) => value === "" || value === null || value === undefined ? [] : [element("dt", {}, name), element("dd", {}, value)];
  if (box.kind) {
    panel.append(element("h3", {}, box.kind), element("dl", {}, ...pair("name", box.label), ...pair("type", graph.texts[graph.values.types[box.value]])));
    return;
  }
  if (box.group) {
    const counts = new Map();
    for (const i of box.members) { const name = graph.texts[graph.nodes[i][0]]; counts.set(name, (counts.get(name) || 0) + 1); }
    const open = element("button", {}, "expand");
    open.addEventListener("click", () => view.toggle(box.group, true));
    panel.append(element("h3", {}, "module"), element("dl", {}, ...pair("path", box.group.path), ...pair("nodes", String(box.members.length)),
      ...pair("time", data.times ? time(sum(box, i => data.times[i])) : "")), open, element("h3", {}, "operators"),
      table([...counts].sort((a, b) => b[1] - a[1]), [["", row => row[0]], ["", row => String(row[1]), "n"]]));
    return;
  }
  const node = graph.nodes[box.node];
  const values = list => list.filter(value => value >= 0).map(value => element("div", {}, element("code", {}, `${graph.values.names[value]}: ${graph.texts[graph.values.types[value]]}`)));
  const difference = data.differences?.[box.node];
  panel.append(element("h3", {}, graph.texts[node[0]]), element("dl", {}, ...pair("name", node[1]), ...pair("module", view.hierarchy.home[box.node].path),
    ...pair("from", graph.texts[node[6]]), ...pair("source", graph.texts[node[7]]), ...pair("time", data.times ? time(data.times[box.node]) : ""),
    ...pair("difference", difference ? element("span", { className: difference[2] ? "" : "bad" }, `${figure(difference[0])} (${figure(difference[1])} of what is allowed)`) : "")),
    element("h3", {}, "inputs"), ...values(node[2]), element("h3", {}, "outputs"), ...values(node[3]));
  if (node[4].length) panel.append(element("h3", {}, "attributes"), element("dl", {}, ...node[4].flatMap(([name, value]) => pair(name, element("code", {}, value)))));
}

// Tables

function operators() {
  const { stages } = data;
  const names = [...new Set(stages.flatMap(stage => Object.keys(stage.operators)))];
  const last = stages[stages.length - 1].operators;
  names.sort((a, b) => (last[b] || 0) - (last[a] || 0) || a.localeCompare(b));
  const most = Math.max(...names.map(name => last[name] || 0));
  $("operator-table").append(table(names, [["operator", name => name], ...stages.map(stage => [stage.name, name => String(stage.operators[name] || ""), "n"]),
    ["", name => line((last[name] || 0) / most)]]));
}

function weights() {
  $("weights").hidden = !data.weights.length;
  if (!data.weights.length) return;
  const total = data.file.weights || 1;
  treemap($("treemap"), data.weights.filter(weight => weight.bytes > 0).slice(0, 60));
  $("weight-table").append(table(data.weights.slice(0, 100), [["tensor", w => w.name], ["type", w => element("code", {}, `${w.dtype.toLowerCase()}[${w.shape.join(", ")}]`)],
    ["size", w => size(w.bytes), "n"], ["share", w => `${(100 * w.bytes / total).toFixed(1)} %`, "n"], ["", w => line(w.bytes / data.weights[0].bytes)]]));
}

// Slices in turn across the longer side, largest first; each slice holds about a fifth of what is left.
function treemap(place, items) {
  const box = element("div", { className: "treemap" });
  let left = 0, top = 0, width = 100, height = 100, rest = items.slice();
  let total = rest.reduce((all, item) => all + item.bytes, 0);
  while (rest.length && total > 0) {
    const slice = [];
    let part = 0;
    while (rest.length && (part < total / 4 || !slice.length)) { slice.push(rest[0]); part += rest.shift().bytes; }
    const wide = width * 5 >= height;  // the box is about five times as wide as high
    const share = part / total;
    let along = 0;
    for (const item of slice) {
      const piece = item.bytes / part;
      const at = wide ? { left, top: top + along * height, width: width * share, height: height * piece } : { left: left + along * width, top, width: width * piece, height: height * share };
      const hue = 205 + (hash(item.name.split(/[./]/)[0]) * 47 % 160);
      const made = element("div", { title: `${item.name}: ${size(item.bytes)}`, style: `left:${at.left}%;top:${at.top}%;width:${at.width}%;height:${at.height}%;background:hsl(${hue} 45% 42%)` }, item.name);
      box.append(made);
      along += piece;
    }
    if (wide) { left += width * share; width *= 1 - share; } else { top += height * share; height *= 1 - share; }
    total -= part;
  }
  place.append(box);
}
function hash(text) { return [...text].reduce((value, letter) => (value * 31 + letter.charCodeAt(0)) >>> 0, 7); }

// Layers of a quantised file, those first that cost most; and what was measured while it was made.
function quantisation() {
  const found = data.quantisation, place = $("quantisation-body");
  $("quantisation").hidden = !found;
  if (!found) return;
  const percent = share => share === null ? "–" : share === 0 ? "0" : share < 1e-4 ? `${(100 * share).toExponential(1)} %` : `${(100 * share).toFixed(2)} %`;
  const told = ["Each layer alone is rounded, and the error of the outputs is measured by their magnitude; the layers that cost most come first.",
    found.invented ? "The inputs were drawn at random: real ones (--inputs) say more." : "", found.original ? "" : "What rounding the weights costs is only known beside the float original (--against)."];
  place.append(element("p", { className: "dim" }, told.filter(Boolean).join(" ")));
  const most = Math.max(...found.rows.map(row => row.loss || 0)) || 1;
  const node = row => data.graph.nodes.findIndex(entry => entry[1] === row.name || (entry[3].length && data.graph.values.names[entry[3][0]] === row.name));
  place.append(table(found.rows, [["layer", r => r.name], ["operator", r => r.operator], ["loss alone", r => percent(r.loss), "n"], ["", r => line((r.loss || 0) / most)],
    ["signal to noise", r => r.signal_to_noise === null ? "–" : `${r.signal_to_noise.toFixed(1)} dB`, "n"], ["bits", r => r.scale === null ? "float" : String(r.bits), "n"], ["scale", r => figure(r.scale), "n"],
    ["zero point", r => r.scale === null ? "–" : String(r.zero_point), "n"], ["clipped", r => percent(r.clipped), "n"], ["float | quantised", r => overlay(r)],
    ["weight bits", r => r.weight_bits === null ? "–" : String(r.weight_bits), "n"], ["weight scales", r => r.weight_scales === null ? "–" : `${figure(r.weight_scales[0])} … ${figure(r.weight_scales[1])}`, "n"]],
    row => { const i = node(row); if (i >= 0) { view.show(i); $("graph").scrollIntoView(); } }));
  if (found.curve.length) place.append(element("h3", {}, "tried: layers left in float, and what comes of it"), table(found.curve, [["layers in float", p => String(p.floats.length), "n"],
    ["weights", p => size(p.weight_bytes), "n"], ["loss", p => percent(p.loss), "n"], ["", p => line(p.loss / Math.max(...found.curve.map(one => one.loss)))], ["run", p => time(p.seconds), "n"], ["added", p => p.floats.slice(-3).join(", ")]]), curve(found.curve));
  const floats = Object.entries(found.floats);
  if (floats.length) place.append(element("h3", {}, "layers that stay floats"), table(floats, [["layer", f => f[0]], ["why", f => f[1]]]));
}
// What a layer reads: bars are the floats, the line is what is left of them; beyond the marks they are cut off.
function overlay(row) {
  if (!row.histogram) return "–";
  const { float, quantised, ends } = row.histogram, most = Math.max(...float, ...quantised, 1), wide = 196 / float.length;
  const tall = count => count ? Math.max(1, 34 * Math.log1p(count) / Math.log1p(most)) : 0;
  const bars = float.map((count, i) => `<rect class="float" x="${(i * wide).toFixed(1)}" y="${(36 - tall(count)).toFixed(1)}" width="${(wide - 0.4).toFixed(1)}" height="${tall(count).toFixed(1)}"/>`).join("");
  const steps = quantised.map((count, i) => `${i ? "L" : "M"}${(i * wide).toFixed(1)} ${(36 - tall(count)).toFixed(1)}h${wide.toFixed(1)}`).join("");
  const made = element("div", { title: `from ${figure(ends[0])} to ${figure(ends[1])}; integers from ${figure(row.ends[0])} to ${figure(row.ends[1])}` });
  made.innerHTML = `<svg class="overlay" viewBox="0 0 196 36">${bars}<path class="rounded" d="${steps}"/></svg>`;
  return made;
}
function curve(points) {
  const across = Math.max(...points.map(point => point.weight_bytes)), up = Math.max(...points.map(point => point.loss)) || 1;
  const least = Math.min(...points.map(point => point.weight_bytes)), place = point => [60 + 900 * (point.weight_bytes - least) / ((across - least) || 1), 190 - 170 * point.loss / up];
  const plot = element("div", { className: "along" });
  plot.innerHTML = `<svg class="plot" viewBox="0 0 1000 210" preserveAspectRatio="none"><path d="${points.map((point, i) => (i ? "L" : "M") + place(point).map(x => x.toFixed(1)).join(" ")).join("")}" fill="none" stroke="var(--bar)" vector-effect="non-scaling-stroke"/>` +
    points.map(point => `<path class="dot" d="M${place(point).map(x => x.toFixed(1)).join(" ")}h0" stroke="var(--bar)"><title>${point.floats.length} layers in float: ${size(point.weight_bytes)}, loss ${figure(point.loss)}</title></path>`).join("") + "</svg>";
  plot.append(element("span", { style: "top:8%" }, `loss ${figure(up)}`), element("span", { style: "top:94%" }, `${size(least)} to ${size(across)} of weights`));
  return plot;
}

function proof() {
  const found = data.verification, place = $("proof-body");
  if (!found) { place.append(element("p", { className: "dim" }, "Nothing was compared for this page. Pass a model (--against) to compare the file with it.")); return; }
  const mark = ok => element("span", { className: ok ? "good" : "bad" }, ok ? "✓" : "✗");
  place.append(table(found.outputs, [["", o => mark(o.ok)], ["output", o => o.name], ["dtype", o => o.dtype], ["shapes", o => o.shapes.map(s => `[${s.join(", ")}]`).join(" ")],
    ["max abs", o => figure(o.max_abs), "n"], ["max rel", o => figure(o.max_rel), "n"], ["mean abs", o => figure(o.mean_abs), "n"], ["cosine", o => o.cosine === undefined || o.cosine === null ? "–" : o.cosine.toFixed(8), "n"],
    ["out of tolerance", o => o.share === undefined || o.share === null ? "–" : `${(100 * o.share).toFixed(3)} %`, "n"], ["differences", o => histogram(o.histogram)], ["", o => o.reason || ""]]));
  if (data.located) place.append(element("pre", { className: "mono" }, data.located));
  place.append(element("h3", {}, "tried"), table(found.trials, [["", t => t.skipped ? "–" : mark(t.ok)], ["", t => t.label], ["", t => t.skipped || ""]]));
}
function histogram(found) {
  const counts = Array.isArray(found) ? found : found?.counts;
  if (!counts?.length) return "–";
  const most = Math.max(...counts, 1);
  const edges = found.edges || [];
  const label = i => i === 0 ? "equal" : i <= edges.length ? `below ${edges[i - 1]}` : `from ${edges[edges.length - 1]}`;
  return element("div", { className: "histogram" }, ...counts.map((count, i) =>
    element("i", { style: `height:${count ? Math.max(2, 36 * Math.log1p(count) / Math.log1p(most)) : 1}px`, title: `${label(i)}: ${count}` })));
}

function differences() {
  const found = data.differences;
  $("differences").hidden = !found;
  if (!found) return;
  const seen = found.map((entry, i) => entry && { i, abs: entry[0] ?? 1e30, ok: entry[2] }).filter(Boolean);
  const low = 1e-10, lines = [];
  const top = Math.max(low * 10, ...seen.map(entry => entry.abs)), span = Math.log10(top / low);
  const height = number => 200 - 190 * Math.max(0, Math.log10(Math.max(number, low) / low)) / span;
  const plot = element("div", { className: "along" });
  const powers = Array.from({ length: Math.floor(span + 1e-9) + 1 }, (_, i) => i - 10).filter(power => power % Math.ceil(span / 8) === 0);
  for (const power of powers) lines.push(`<path d="M0 ${height(10 ** power).toFixed(1)}H1000" stroke="var(--line)"/>`);
  // A line of no length with round ends is a dot that stays round however wide the plot is.
  for (const entry of seen)
    lines.push(`<path class="dot" d="M${(60 + 930 * entry.i / Math.max(1, found.length - 1)).toFixed(1)} ${height(entry.abs).toFixed(1)}h0" data-node="${entry.i}" stroke="${entry.ok ? "var(--bar)" : "var(--bad)"}"/>`);
  plot.innerHTML = `<svg class="plot" viewBox="0 0 1000 210" preserveAspectRatio="none">${lines.join("")}</svg>`;
  for (const power of powers) plot.append(element("span", { style: `top:${(height(10 ** power) / 2.1).toFixed(2)}%` }, `1e${power}`));
  for (const dot of plot.querySelectorAll(".dot")) {
    const entry = found[dot.dataset.node], node = data.graph.nodes[dot.dataset.node], title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = `${data.graph.texts[node[0]]} ${node[1]}: ${figure(entry[0])}`;
    dot.append(title);
  }
  plot.addEventListener("click", event => { const i = event.target.dataset?.node; if (i !== undefined) { view.show(Number(i)); $("graph").scrollIntoView(); } });
  const worst = seen.filter(entry => !entry.ok).slice(0, 50);
  $("differences-body").append(element("p", { className: "dim" }, `largest absolute difference of ${seen.length} values, in the order of the graph; a click shows the node`), plot);
  if (worst.length) $("differences-body").append(element("h3", {}, "out of tolerance, first to last"), table(worst, [["node", e => data.graph.nodes[e.i][1]], ["operator", e => data.graph.texts[data.graph.nodes[e.i][0]]],
    ["source", e => data.graph.texts[data.graph.nodes[e.i][7]]], ["max abs", e => figure(e.abs), "n"]], e => { view.show(e.i); $("graph").scrollIntoView(); }));
}

function times() {
  const stages = Object.entries(data.timings);
  $("time").hidden = !stages.length && !data.times;
  if (stages.length) {
    const most = Math.max(...stages.map(stage => stage[1]));
    $("stage-times").append(element("h3", {}, "the export, by stage"), table(stages, [["stage", s => s[0]], ["seconds", s => s[1].toFixed(3), "n"], ["", s => line(s[1] / most)]]));
  }
  if (!data.times) return;
  const total = data.times.reduce((all, one) => all + one, 0) || 1;
  const byOperator = new Map();
  data.times.forEach((seconds, i) => { const name = data.graph.texts[data.graph.nodes[i][0]]; byOperator.set(name, (byOperator.get(name) || 0) + seconds); });
  const rows = [...byOperator].sort((a, b) => b[1] - a[1]).slice(0, 30);
  const slowest = data.times.map((seconds, i) => ({ i, seconds })).sort((a, b) => b.seconds - a.seconds).slice(0, 60);
  $("node-times").append(element("p", { className: "dim" }, "ONNX Runtime on the CPU, node by node, its own fusions switched off"),
    element("h3", {}, "by operator"), table(rows, [["operator", r => r[0]], ["time", r => time(r[1]), "n"], ["share", r => `${(100 * r[1] / total).toFixed(1)} %`, "n"], ["", r => line(r[1] / rows[0][1])]]),
    element("h3", {}, "slowest nodes"), table(slowest, [["node", e => data.graph.nodes[e.i][1] || `#${e.i}`], ["operator", e => data.graph.texts[data.graph.nodes[e.i][0]]], ["source", e => data.graph.texts[data.graph.nodes[e.i][7]]],
      ["time", e => time(e.seconds), "n"], ["share", e => `${(100 * e.seconds / total).toFixed(1)} %`, "n"]], e => { view.show(e.i); $("graph").scrollIntoView(); }));
}

function bench() {
  $("bench").hidden = !data.bench;
  if (data.bench) $("bench-body").innerHTML = data.bench.svg;
  if (data.bench) $("bench-body").append(element("pre", { className: "mono" }, data.bench.text));
}

window.tonnx = { view, data };  // for the console
