"use strict";
// The picture of the graph on a canvas: only what lies in the window is drawn, so its size does not matter.

class GraphView {
  constructor(canvas, graph, hooks) {
    this.canvas = canvas; this.graph = graph; this.hooks = hooks;
    this.context = canvas.getContext("2d");
    this.hierarchy = new Hierarchy(graph);
    this.scale = 1; this.x = 0; this.y = 0; this.selected = null;
    this.colourOf = () => null;
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.arrange();
  }
  arrange() {
    this.context.font = "12px system-ui, sans-serif";
    const widths = new Map();
    const measure = text => {
      if (!widths.has(text)) widths.set(text, this.context.measureText(text).width);
      return widths.get(text);
    };
    this.shown = place(visible(this.hierarchy), measure);
    this.byRow = [];
    for (const box of this.shown.boxes) (this.byRow[box.row] ||= []).push(box);
    this.frames = frame(this.shown);
    this.keepSelected();
    this.hooks.arranged?.(this);
    this.draw();
  }
  // The box of the node that was chosen, if it is still to be seen.
  keepSelected() {
    const chosen = this.selected;
    if (!chosen) return;
    const same = box => chosen.group ? box.group === chosen.group : chosen.kind ? box.kind === chosen.kind && box.value === chosen.value : box.node === chosen.node;
    this.select(this.shown.boxes.find(same) || null);
  }
  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio;
    if (!this.fitted) this.fit(); else this.draw();
  }
  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    let left = Infinity, right = -Infinity, bottom = 0;
    for (const box of this.shown.boxes) {
      left = Math.min(left, box.x - box.w / 2); right = Math.max(right, box.x + box.w / 2); bottom = Math.max(bottom, box.y + HEIGHT);
    }
    if (!(right > left)) return;
    // Readable rather than complete: a long chain begins at its top.
    this.scale = Math.min(1.2, Math.max(0.45, Math.min(width / (right - left + 60), height / (bottom + 60))));
    this.x = width / 2 - (left + right) / 2 * this.scale;
    this.y = bottom * this.scale + 60 < height ? (height - bottom * this.scale) / 2 : 20;
    this.fitted = true;
    this.draw();
  }
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }
  paint() {
    const c = this.context, ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(name).trim();
    const { clientWidth: width, clientHeight: height } = this.canvas;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.translate(this.x, this.y); c.scale(this.scale, this.scale);
    const left = -this.x / this.scale, top = -this.y / this.scale;
    const right = left + width / this.scale, bottom = top + height / this.scale;
    const first = rowAt(this.shown.heights, top), last = rowAt(this.shown.heights, bottom);
    c.lineWidth = 1 / Math.max(this.scale, 0.6);
    for (const frame of this.frames) {
      if (frame.bottom < top || frame.top > bottom || frame.right + BESIDE < left || frame.left - BESIDE > right) continue;
      c.fillStyle = colour("--group"); c.strokeStyle = colour("--group-line");
      c.beginPath(); c.roundRect(frame.left - BESIDE, frame.top, frame.right - frame.left + 2 * BESIDE, frame.bottom - frame.top, 8);
      c.fill(); c.stroke();
      if (this.scale > 0.35) { c.fillStyle = colour("--dim"); c.font = "10px system-ui, sans-serif"; c.fillText(fitted(c, frame.group.name, frame.right - frame.left + BESIDE), frame.left - 6, frame.top + 11); }
    }
    c.strokeStyle = colour("--dim");
    for (const edge of this.shown.edges) {
      const { from, to } = edge;
      if (Math.max(from.row, to.row) < first || Math.min(from.row, to.row) > last) continue;
      c.globalAlpha = this.selected && (from === this.selected || to === this.selected) ? 1 : 0.35;
      c.setLineDash(edge.runs ? [3, 3] : []);
      c.beginPath();
      c.moveTo(from.x, from.y + HEIGHT);
      // An edge that skips rows goes around the boxes between.
      const rows = Math.abs(to.row - from.row), side = rows > 1 ? Math.max(from.x + from.w / 2, to.x + to.w / 2) + 14 + 10 * Math.min(rows, 8) : 0;
      const bend = Math.min(40, Math.abs(to.y - from.y) / 2);
      if (rows > 1) c.bezierCurveTo(side, from.y + HEIGHT + bend, side, to.y - bend, to.x, to.y);
      else c.bezierCurveTo(from.x, from.y + HEIGHT + bend, to.x, to.y - bend, to.x, to.y);
      c.stroke();
    }
    c.globalAlpha = 1; c.setLineDash([]);
    c.textAlign = "center"; c.textBaseline = "middle"; c.font = "12px system-ui, sans-serif";
    for (let row = first; row <= last; row++) for (const box of this.byRow[row] || []) {
      if (box.x + box.w / 2 < left || box.x - box.w / 2 > right) continue;
      this.paintBox(box, colour);
    }
    c.textAlign = "start"; c.textBaseline = "alphabetic";
  }
  paintBox(box, colour) {
    const c = this.context, x = box.x - box.w / 2;
    c.beginPath(); c.roundRect(x, box.y, box.w, HEIGHT, box.kind ? 15 : box.group ? 7 : 4);
    c.fillStyle = box.kind ? colour("--panel") : this.colourOf(box) || (box.group ? colour("--group") : operatorColour(box.operator));
    c.fill();
    c.strokeStyle = box === this.selected ? colour("--accent") : box.group || box.kind ? colour("--dim") : "transparent";
    const width = c.lineWidth;
    c.lineWidth = box === this.selected ? 3 : width; c.stroke(); c.lineWidth = width;
    if (this.scale < 0.28) return;
    const plain = box.kind || (box.group && !this.colourOf(box));
    c.fillStyle = plain ? colour("--text") : colour("--node-text");
    c.fillText(fitted(c, box.label, box.w - 8), box.x, box.y + HEIGHT / 2);
  }
  at(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const x = (event.clientX - bounds.left - this.x) / this.scale, y = (event.clientY - bounds.top - this.y) / this.scale;
    for (const box of this.byRow[rowAt(this.shown.heights, y)] || [])
      if (Math.abs(x - box.x) <= box.w / 2 && y >= box.y && y <= box.y + HEIGHT) return box;
    return null;
  }
  select(box) { this.selected = box; this.hooks.selected?.(box); this.draw(); }
  centre(box) {
    this.scale = Math.max(this.scale, 0.8);
    this.x = this.canvas.clientWidth / 2 - box.x * this.scale;
    this.y = this.canvas.clientHeight / 2 - box.y * this.scale;
    this.draw();
  }
  // Open every module around a node, select it and bring it to the middle.
  show(node) {
    this.hierarchy.reveal(node);
    this.arrange();
    const box = this.shown.of[node];
    this.select(box); this.centre(box);
    return box;
  }
  toggle(group, open = !group.open) {
    const before = this.shown.boxes.find(box => box.group === group) || this.shown.of[firstNode(group)];
    const place = before && { x: before.x * this.scale + this.x, y: before.y * this.scale + this.y };
    group.open = open;
    this.arrange();
    const after = this.shown.boxes.find(box => box.group === group) || this.shown.of[firstNode(group)];
    if (place && after) { this.x = place.x - after.x * this.scale; this.y = place.y - after.y * this.scale; this.draw(); }
  }
  listen() {
    const canvas = this.canvas;
    let from = null, moved = false;
    canvas.addEventListener("pointerdown", event => { from = { x: event.clientX - this.x, y: event.clientY - this.y, ex: event.clientX, ey: event.clientY }; moved = false; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", event => {
      if (!from) { canvas.style.cursor = this.at(event) ? "pointer" : "grab"; return; }
      if (Math.hypot(event.clientX - from.ex, event.clientY - from.ey) > 3) moved = true;
      if (moved) { this.x = event.clientX - from.x; this.y = event.clientY - from.y; this.draw(); }
    });
    canvas.addEventListener("pointerup", event => {
      if (from && !moved) this.select(this.at(event));
      from = null;
    });
    canvas.addEventListener("dblclick", event => { const box = this.at(event); if (box?.group) this.toggle(box.group); });
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const bounds = canvas.getBoundingClientRect(), x = event.clientX - bounds.left, y = event.clientY - bounds.top;
      this.zoom(Math.exp(-event.deltaY * 0.0015), x, y);
    }, { passive: false });
    canvas.addEventListener("keydown", event => {
      const step = { ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0] }[event.key];
      if (step) { this.x += step[0]; this.y += step[1]; this.draw(); event.preventDefault(); }
      if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 1.25 : 0.8, canvas.clientWidth / 2, canvas.clientHeight / 2);
      if (event.key === "Enter" && this.selected?.group) this.toggle(this.selected.group);
    });
  }
  zoom(by, x, y) {
    const scale = Math.min(4, Math.max(0.02, this.scale * by));
    this.x = x - (x - this.x) * scale / this.scale; this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.draw();
  }
}

function firstNode(group) {
  while (group && !group.nodes.length) group = [...group.groups.values()][0];
  return group ? group.nodes[0] : 0;
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(text.slice(0, end) + "…").width > width) end--;
  return text.slice(0, end) + "…";
}

// Families of operators have a colour of their own; the rest is grey.
const FAMILIES = [
  [/^(Conv|Gemm|MatMul|Attention|LSTM|GRU|RNN|QLinear|Einsum|DeformConv)/, "#2f6fc4"],
  [/(Normalization|LpNorm)/, "#7a55b5"],
  [/(Relu|Sigmoid|Tanh|Softmax|Softplus|Gelu|Swish|Elu|HardS|Mish|Clip|Erf|Selu|PRelu)/, "#b8562f"],
  [/(Pool|Resize|Upsample|GridSample|RoiAlign)/, "#2b8a72"],
  [/^(Reshape|Transpose|Squeeze|Unsqueeze|Flatten|Concat|Split|Slice|Gather|Scatter|Expand|Tile|Pad|Shape|DepthToSpace|SpaceToDepth|Identity|Cast)/, "#5d6b7e"],
  [/^(If|Loop|Scan|Sequence|Optional)/, "#a8437a"],
  [/^(Quantize|Dequantize|DynamicQuantize)/, "#8a7a1f"],
  [/^(Add|Sub|Mul|Div|Pow|Sqrt|Exp|Log|Neg|Abs|Min|Max|Sum|Mean|Reduce|Where|Equal|Greater|Less|And|Or|Not)/, "#4d7f3a"],
];
function operatorColour(name) {
  for (const [pattern, colour] of FAMILIES) if (pattern.test(name)) return colour;
  return "#70757d";
}
