// Charts as SVG whose elements are made once and moved afterwards: nothing is rebuilt, so nothing flickers.

const SVG = "http://www.w3.org/2000/svg";
export const ARMS = ["treated", "control", "incumbent", "random"];

export function attributes(node, values) {
  for (const [name, value] of Object.entries(values)) {
    const text = String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
  return node;
}

export function text(node, value) {
  const words = String(value);
  if (node.textContent !== words) node.textContent = words;
}

// The children of a node as `count` elements made by `make`: more are added, fewer are left.
export function sized(node, count, make) {
  while (node.children.length > count) node.lastElementChild.remove();
  while (node.children.length < count) node.append(make(node.children.length));
  return [...node.children];
}

export function element(name, values = {}) {
  return attributes(document.createElementNS(SVG, name), values);
}

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size === 0) return "0";
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
}

export function signed(value) {
  return (value > 0 ? "+" : value < 0 ? "−" : "") + number(Math.abs(value));
}

function ticks(low, high, most) {
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(one => one * power).find(one => one >= raw - 1e-12);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) found.push(tick);
  return found.map(tick => Math.abs(tick) < step * 1e-9 ? 0 : tick);
}

function frame(holder, label, description, height) {
  let svg = holder.querySelector("svg");
  if (!svg) {
    svg = element("svg", {role: "img"});
    svg.append(element("title"), element("desc"));
    for (const part of ["grid-x", "grid-y", "marks", "bands", "lines", "dots"]) svg.append(element("g", {"data-part": part}));
    holder.append(svg);
  }
  const width = Math.max(holder.clientWidth, 120);
  attributes(svg, {viewBox: `0 0 ${width} ${height}`, height, "aria-label": label});
  text(svg.querySelector("title"), label);
  text(svg.querySelector("desc"), description);
  return {svg, width, part: name => svg.querySelector(`[data-part=${name}]`)};
}

function axis(group, places, make) {
  const nodes = sized(group, places.length, () => {
    const holder = element("g");
    holder.append(element("line", {class: "grid"}), element("text"));
    return holder;
  });
  places.forEach((place, i) => make(nodes[i].firstChild, nodes[i].lastChild, place));
}

// Curves {name: [{x, y, low, high}]} with bands where there is an interval; `zero` draws the line of no difference.
export function curves(holder, series, {label, description, height = 260, zero = false, unit = ""}) {
  const {width, part} = frame(holder, label, description, height);
  const names = ARMS.filter(arm => (series[arm] || []).length);
  const points = names.flatMap(arm => series[arm]);
  if (!points.length) {
    for (const name of ["grid-x", "grid-y", "marks", "bands", "lines", "dots"]) part(name).replaceChildren();
    return;
  }
  const last = Math.max(...points.map(one => one.x), 2);
  const means = points.map(one => one.y);
  const spread = Math.max(...means) - Math.min(...means) || Math.abs(means[0]) || 1;
  // A band that is far wider than the curves differ would flatten them: it is cut.
  let low = Math.max(Math.min(...points.map(one => one.low ?? one.y)), Math.min(...means) - spread);
  let high = Math.min(Math.max(...points.map(one => one.high ?? one.y)), Math.max(...means) + spread);
  if (zero) { low = Math.min(low, 0); high = Math.max(high, 0); }
  const pad = 0.06 * (high - low || 1); low -= pad; high += pad;
  const left = 48, right = width - 12, top = 8, bottom = height - 34;
  const x = n => left + (right - left) * (last > 1 ? (n - 1) / (last - 1) : 0.5);
  const y = value => bottom - (bottom - top) * (Math.min(Math.max(value, low), high) - low) / (high - low);
  axis(part("grid-y"), ticks(low, high, 5), (line, words, tick) => {
    attributes(line, {x1: left, x2: right, y1: y(tick), y2: y(tick), class: zero && tick === 0 ? "zero" : "grid"});
    attributes(words, {x: left - 8, y: y(tick) + 4, "text-anchor": "end"});
    text(words, zero ? signed(tick) : number(tick));
  });
  const steps = ticks(1, last, Math.min(10, Math.floor(width / 60))).filter(n => Number.isInteger(n) && n > 1);
  axis(part("grid-x"), [1, ...steps], (line, words, tick) => {
    attributes(line, {x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4, class: "grid"});
    attributes(words, {x: x(tick), y: bottom + 18, "text-anchor": "middle"});
    text(words, tick);
  });
  const [units] = sized(part("marks"), 1, () => element("text"));
  attributes(units, {x: right, y: height - 2, "text-anchor": "end"});
  text(units, unit);
  const bands = sized(part("bands"), names.length, () => element("path"));
  const lines = sized(part("lines"), names.length, () => element("path"));
  const dots = sized(part("dots"), names.length, () => element("circle", {r: 3.5}));
  names.forEach((arm, i) => {
    const own = series[arm], sure = own.filter(one => one.low !== null);
    const upper = sure.map(one => `${x(one.x)},${y(one.high)}`), lower = sure.map(one => `${x(one.x)},${y(one.low)}`).reverse();
    attributes(bands[i], {class: `band ${arm}`, d: sure.length > 1 ? `M${[...upper, ...lower].join("L")}Z` : ""});
    attributes(lines[i], {class: `line ${arm}`, d: `M${own.map(one => `${x(one.x)},${y(one.y)}`).join("L")}`});
    const end = own[own.length - 1];
    attributes(dots[i], {class: `dot ${arm}`, cx: x(end.x), cy: y(end.y)});
  });
}

// Counts by second as bars.
export function spark(holder, counts) {
  const height = 36, {width, part} = frame(holder, "Decisions by second", `The last ${counts.length} seconds`, height);
  const high = Math.max(...counts, 1), step = width / counts.length;
  const bars = sized(part("lines"), counts.length, () => element("rect", {class: "bar"}));
  counts.forEach((count, i) => {
    const tall = count ? Math.max(1.5, (height - 2) * count / high) : 0;
    attributes(bars[i], {x: (i * step).toFixed(2), width: Math.max(step - 1, 0.5).toFixed(2), y: height - tall, height: tall});
  });
}

// Intervals below each other on one scale, zero among them.
export function forest(holder, rows) {
  const nodes = sized(holder, rows.length, () => {
    const row = document.createElement("div"), what = document.createElement("span"), value = document.createElement("span");
    row.className = "row"; what.className = "what"; value.className = "value";
    const svg = element("svg", {role: "img"});
    svg.append(element("title"), element("desc"), element("line", {class: "zero"}), element("line", {class: "interval"}),
      element("circle", {class: "point", r: 5}));
    row.append(what, svg, value);
    return row;
  });
  const known = rows.flatMap(row => [row.low ?? row.value, row.high ?? row.value, 0]);
  const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
  rows.forEach((row, i) => {
    const [what, svg, value] = nodes[i].children, [title, desc, zero, line, point] = svg.children;
    const width = Math.max(svg.clientWidth, 60), x = one => 8 + (width - 16) * (one - low) / span;
    text(what, row.name); text(value, row.words);
    attributes(svg, {viewBox: `0 0 ${width} 22`, "aria-label": `${row.name}: ${row.words}`});
    text(title, row.name); text(desc, row.words);
    attributes(zero, {x1: x(0), x2: x(0), y1: 0, y2: 22});
    const sure = row.low !== null;
    attributes(line, {x1: x(sure ? row.low : row.value), x2: x(sure ? row.high : row.value), y1: 11, y2: 11});
    attributes(point, {cx: x(row.value), cy: 11});
  });
}
