"use strict";
// The hierarchy of modules, what of it is visible, and where it is drawn. Everything is linear in nodes and edges.

const GAP = 26, HEIGHT = 30, BETWEEN = 32;
// What a frame around an open module needs above, below and at each side of what is inside.
const ABOVE = 16, BELOW = 10, BESIDE = 12;

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

// The modules that have a frame around what is in this one, the outermost first.
function frames(group) {
  const found = [];
  for (let at = group; at && at.parent; at = at.parent) if (at.size > 1) found.push(at);
  return found.reverse();
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
      box = { index: boxes.length, node: group ? -1 : i, group, around: frames(group ? group.parent : home), label, operator, first: i, members: [], ins: [], outs: [], reads: [], owner: of[node[8]] || null };
      boxes.push(box);
      if (group) byGroup.set(group, box);
    }
    box.members.push(i);
    of[i] = box;
  });
  const ends = [];
  const end = (value, kind) => {
    const box = { index: boxes.length, node: -1, group: null, around: [], label: graph.values.names[value], kind, value,
      first: kind === "input" ? -1 : graph.nodes.length, members: [], ins: [], outs: [], reads: [], owner: null };
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
      edge = { from, to, runs: value < 0 };
      edges.set(key, edge);
      from.outs.push(edge); to.ins.push(edge);
    }
  };
  graph.nodes.forEach((node, i) => {
    for (const value of node[2]) {
      if (value < 0) continue;
      const maker = hierarchy.maker.get(value);
      if (maker !== undefined) join(of[maker], of[i], value);
      else if (inputs.has(value)) join(inputs.get(value), of[i], value);
    }
    // The body of an If, Loop or function hangs below the node that runs it.
    const owner = node[8], beside = value => value >= 0 && graph.nodes[hierarchy.maker.get(value)]?.[8] === owner;
    if (owner >= 0 && !node[2].some(beside)) join(of[owner], of[i], -1);
    // What a body reads from outside has to be there before the node that runs it.
    for (let at = owner; at >= 0; at = graph.nodes[at][8])
      for (const value of node[2]) { const maker = hierarchy.maker.get(value); if (maker < at) of[at].reads.push(of[maker]); }
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
    // What reads the result of an If, Loop or function comes below its body.
    for (const { from, runs } of box.ins) if (from.first < box.first) row = Math.max(row, (runs ? from.row : from.deepest) + 1);
    for (const from of box.reads) if (from.first < box.first) row = Math.max(row, from.deepest + 1);
    box.row = box.deepest = row;
    for (let at = box.owner; at; at = at.owner) at.deepest = Math.max(at.deepest, row);
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
  shown.rows = rows.length;
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
  let before = null;
  for (const box of row) {
    box.x = before ? Math.max(box.want, before.x + (before.w + box.w) / 2 + apart(before, box)) : box.want;
    before = box;
  }
  // Pushing went to the right only: move the whole row back by what it was pushed on average.
  let shift = 0;
  for (const box of row) shift += box.x - box.want;
  shift /= row.length;
  for (const box of row) box.x -= shift;
}

// Between two boxes side by side there has to be room for the frames that end there.
function apart(one, other) {
  let common = 0;
  while (common < one.around.length && one.around[common] === other.around[common]) common++;
  return GAP + BESIDE * Math.min(8, Math.max(0, one.around.length + other.around.length - 2 * common - 1));
}

// Frames around open modules, the outermost first; gives every box and frame its height.
function frame(shown) {
  const found = new Map();
  for (const box of shown.boxes) {
    let inner = null;
    for (const group of box.around) {
      if (!found.has(group)) found.set(group, { group, outer: inner, depth: inner ? inner.depth + 1 : 0, left: Infinity, right: -Infinity, first: Infinity, last: -1, above: 1, below: 1 });
      inner = found.get(group);
    }
    if (inner) widen(inner, box.x - box.w / 2, box.x + box.w / 2, box.row, box.row);
  }
  const frames = [...found.values()].sort((a, b) => a.depth - b.depth), inside = frames.filter(inner => inner.outer).reverse();
  for (const inner of inside) widen(inner.outer, inner.left - BESIDE, inner.right + BESIDE, inner.first, inner.last);
  // Where two frames begin or end at one row, the outer one lies around the inner one and its title.
  for (const { outer, first, last, above, below } of inside) {
    if (outer.first === first) outer.above = Math.max(outer.above, above + 1);
    if (outer.last === last) outer.below = Math.max(outer.below, below + 1);
  }
  const above = new Array(shown.rows).fill(0), below = new Array(shown.rows).fill(0);
  for (const one of frames) { above[one.first] = Math.max(above[one.first], one.above); below[one.last] = Math.max(below[one.last], one.below); }
  shown.heights = [];
  for (let row = 0, y = above[0] * ABOVE; row < shown.rows; row++) {
    shown.heights.push(y);
    y += HEIGHT + Math.max(BETWEEN, 6 + ABOVE * (above[row + 1] || 0) + BELOW * below[row]);
  }
  for (const box of shown.boxes) box.y = shown.heights[box.row];
  for (const one of frames) { one.top = shown.heights[one.first] - ABOVE * one.above; one.bottom = shown.heights[one.last] + HEIGHT + BELOW * one.below; }
  return frames;
}
function widen(one, left, right, first, last) {
  one.left = Math.min(one.left, left); one.right = Math.max(one.right, right);
  one.first = Math.min(one.first, first); one.last = Math.max(one.last, last);
}

// The last row that begins at or above a height; 0 if none does.
function rowAt(heights, y) {
  let low = 0, high = heights.length;
  while (high - low > 1) { const middle = (low + high) >> 1; if (heights[middle] <= y) low = middle; else high = middle; }
  return low;
}
