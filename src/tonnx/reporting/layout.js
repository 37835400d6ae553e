"use strict";
// The hierarchy of modules, what of it is visible, and where it is drawn. Everything is linear in nodes and edges.

const ROW = 62, GAP = 26, HEIGHT = 30;

class Hierarchy {
  // A group is {id, name, path, parent, groups, nodes, size, open}; leaves are node numbers.
  constructor(graph) {
    this.graph = graph;
    this.root = this.group("", "", null);
    this.root.open = true;
    this.groups = [this.root];
    this.home = graph.nodes.map((node, i) => {
      let at = this.root;
      for (const part of node[5]) at = this.child(at, graph.texts[part]);
      at.nodes.push(i);
      return at;
    });
    for (const group of [...this.groups].reverse()) {
      group.size += group.nodes.length;
      if (group.parent) group.parent.size += group.size;
    }
    // A module of one node is shown as that node.
    for (const group of this.groups) if (group.size === 1) group.open = true;
    this.maker = new Map();
    graph.nodes.forEach((node, i) => node[3].forEach(value => { if (value >= 0) this.maker.set(value, i); }));
    // A chain of modules with a single child says nothing: begin where it branches.
    let at = this.root;
    while (at.groups.size === 1 && at.nodes.length === 0) { at = [...at.groups.values()][0]; at.open = true; }
  }
  group(name, path, parent) {
    return { id: 0, name, path, parent, groups: new Map(), nodes: [], size: 0, open: false };
  }
  child(at, name) {
    let found = at.groups.get(name);
    if (!found) {
      found = this.group(name, at.path ? `${at.path}.${name}` : name, at);
      found.id = this.groups.length;
      at.groups.set(name, found);
      this.groups.push(found);
    }
    return found;
  }
  find(path) { return this.groups.find(group => group.path === path); }
  reveal(node) { for (let at = this.home[node]; at; at = at.parent) at.open = true; }
  setAll(open) { for (const group of this.groups) group.open = open || group === this.root || group.size === 1; }
  deeper() {
    const closed = this.groups.filter(group => !group.open && (!group.parent || this.isShown(group)));
    for (const group of closed) group.open = true;
  }
  isShown(group) {
    for (let at = group.parent; at; at = at.parent) if (!at.open) return false;
    return true;
  }
  // What stands for a node: itself, or the outermost closed module around it.
  standIn(node) {
    let closed = null;
    for (let at = this.home[node]; at; at = at.parent) if (!at.open) closed = at;
    return closed;
  }
}

// The visible boxes and the edges between them.
function visible(hierarchy) {
  const { graph } = hierarchy;
  const boxes = [], byGroup = new Map(), of = new Array(graph.nodes.length);
  graph.nodes.forEach((node, i) => {
    const group = hierarchy.standIn(i);
    let box = group && byGroup.get(group);
    if (!box) {
      const home = hierarchy.home[i], operator = graph.texts[node[0]];
      const label = group ? `${group.name} ▸${group.size}` : home.size === 1 && home.name ? `${home.name} · ${operator}` : operator;
      box = { index: boxes.length, node: group ? -1 : i, group, label, operator, first: i, members: [], ins: [], outs: [] };
      boxes.push(box);
      if (group) byGroup.set(group, box);
    }
    box.members.push(i);
    of[i] = box;
  });
  const ends = [];
  const end = (value, kind) => {
    const box = { index: boxes.length, node: -1, group: null, label: graph.values.names[value], kind, value,
      first: kind === "input" ? -1 : graph.nodes.length, members: [], ins: [], outs: [] };
    boxes.push(box); ends.push(box);
    return box;
  };
  const inputs = new Map(graph.inputs.map(value => [value, end(value, "input")]));
  const edges = new Map();
  const join = (from, to, value) => {
    if (from === to) return;
    const key = from.index * 1e6 + to.index;
    let edge = edges.get(key);
    if (!edge) {
      edge = { from, to, values: [] };
      edges.set(key, edge);
      from.outs.push(edge); to.ins.push(edge);
    }
    if (edge.values.length < 4) edge.values.push(value);
  };
  graph.nodes.forEach((node, i) => {
    for (const value of node[2]) {
      if (value < 0) continue;
      const maker = hierarchy.maker.get(value);
      if (maker !== undefined) join(of[maker], of[i], value);
      else if (inputs.has(value)) join(inputs.get(value), of[i], value);
    }
  });
  for (const value of graph.outputs) {
    const maker = hierarchy.maker.get(value);
    const box = end(value, "output");
    if (maker !== undefined) join(of[maker], box, value);
    else if (inputs.has(value)) join(inputs.get(value), box, value);
  }
  boxes.sort((a, b) => a.first - b.first);
  return { boxes, edges: [...edges.values()], of };
}

// Rows by the longest way from the inputs; within a row, near to what feeds a box.
function place(shown, measure) {
  const rows = [];
  for (const box of shown.boxes) {
    box.w = Math.max(46, Math.min(230, measure(box.label) + 24));
    let row = 0;
    // A module may lie both before and behind another; such edges are drawn, but do not push boxes down.
    for (const edge of box.ins) if (edge.from.first < box.first) row = Math.max(row, edge.from.row + 1);
    box.row = row;
    (rows[row] ||= []).push(box);
  }
  // An input goes right above its first reader, not to the top of everything.
  for (const box of shown.boxes) {
    if (box.kind !== "input" || !box.outs.length) continue;
    const wanted = Math.max(0, Math.min(...box.outs.map(edge => edge.to.row)) - 1);
    if (wanted > box.row) {
      rows[box.row].splice(rows[box.row].indexOf(box), 1);
      box.row = wanted;
      rows[wanted].push(box);
    }
  }
  for (const row of rows) if (row) spread(row, box => mean(box.ins, edge => edge.from.x));
  for (let sweep = 0; sweep < 2; sweep++) {
    for (let i = rows.length - 1; i >= 0; i--) if (rows[i]) spread(rows[i], box => mean(box.outs, edge => edge.to.x) ?? box.x);
    for (const row of rows) if (row) spread(row, box => mean(box.ins, edge => edge.from.x) ?? box.x);
  }
  for (const box of shown.boxes) box.y = box.row * ROW;
  return shown;
}

function mean(edges, of) {
  let sum = 0, count = 0;
  for (const edge of edges) { const x = of(edge); if (x !== undefined) { sum += x; count++; } }
  return count ? sum / count : undefined;
}

// Boxes side by side, each as near to where it wants to be as its neighbours let it.
function spread(row, wish) {
  for (const box of row) box.want = wish(box) ?? 0;
  row.sort((a, b) => a.want - b.want || a.first - b.first);
  let right = -Infinity;
  for (const box of row) {
    box.x = Math.max(box.want, right + GAP + box.w / 2);
    right = box.x + box.w / 2;
  }
  // Pushing went to the right only: move the whole row back by what it was pushed on average.
  let shift = 0;
  for (const box of row) shift += box.x - box.want;
  shift /= row.length;
  for (const box of row) box.x -= shift;
}
