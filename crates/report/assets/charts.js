// The charts over time and the waits. Each function fills a part of the page for one policy and gives what must be
// drawn again when the width or the colours change.

const state = { policy: 0, cumulative: false, totalWaits: false, only: null };
let chartCount = 0;

function timeChart(options) {
  return lineChart({ id: chartCount++, from: 0, ...options });
}

// The step over which delivered GPU-time is averaged, in seconds: at most some sixty of them.
const averageStep = (seconds) => [3600, 21600, 86400, 604800].find((step) => seconds / step <= 62) ?? 2592000;

// Per step the mean of what a growing sum grew by, as GPUs.
function means(at, sums, step) {
  const ends = [];
  const values = [];
  let [before, beforeAt] = [0, 0];
  for (let place = 0; place < at.length; place++) {
    const last = place === at.length - 1;
    if (at[place] - beforeAt < step && !last) continue;
    const hours = (at[place] - beforeAt) / 3600;
    if (hours > 0) {
      ends.push(at[place]);
      values.push((sums[place] - before) / hours);
    }
    [before, beforeAt] = [sums[place], at[place]];
  }
  return { at: ends, values };
}

function drawDelivered(part) {
  const { samples } = POLICIES[state.policy];
  const end = samples.count > 0 ? samples.at[samples.count - 1] : 0;
  const step = averageStep(end);
  const names = [`mean over ${span(step)}`, "since the start"];
  const pick = choice("Show", "delivered-kind", names, Number(state.cumulative), (at) => {
    state.cumulative = at === 1;
    refresh("delivered");
    document.querySelector("input[name=delivered-kind]:checked")?.focus();
  });
  const legend = element(
    "ul",
    { class: "legend" },
    element("li", {}, lineKey((colours) => colours.solid[LEAVES[0] ?? 0], "", 2.4, "delivered")),
    element("li", {}, lineKey((colours) => colours.ink, "4 3", 1.3, "allocation")),
  );
  const grid = element("div", { class: "many" });
  const charts = LEAVES.map((leaf) => {
    const series = (sums) => (state.cumulative ? { at: samples.at, values: sums } : means(samples.at, sums, step));
    const delivered = series(samples.charged[leaf]);
    const allocation = series(samples.allocation[leaf]);
    const unit = state.cumulative ? "GPU-hours" : "GPUs";
    const format = (value) => (state.cumulative ? `${whole(value)} GPU-h` : `${value < 10 ? value.toFixed(2) : value.toFixed(1)} GPUs`);
    const { path } = DATA.budgets[leaf];
    return timeChart({
      title: `${path}, ${unit}`,
      label: `${path}: delivered and allocation, ${unit} ${state.cumulative ? "since the start" : names[0]}`,
      height: 130,
      at: delivered.at,
      format,
      lines: [
        { name: "allocation", values: allocation.values, colour: (colours) => colours.ink, dash: "4 3", width: 1.3, step: !state.cumulative },
        { name: "delivered", values: delivered.values, colour: (colours) => colours.line[leaf], width: 2.2, step: !state.cumulative },
      ],
    });
  });
  grid.append(...charts.map((chart) => chart.figure));
  part.replaceChildren(element("div", { class: "bar" }, pick), legend, grid);
  return charts;
}

function drawRatios(part) {
  const { samples } = POLICIES[state.policy];
  const lineOf = (budget, name, width) => ({
    name,
    values: samples.ratio[budget],
    colour: (colours) => colours.line[budget],
    dash: dashOf(budget),
    width,
  });
  const common = { at: samples.at, format: (value) => value.toFixed(3), reference: { value: 1 }, tick: (value) => String(value) };
  const top = timeChart({
    ...common,
    wide: true,
    title: "Programmes",
    label: "usage ratio per programme",
    height: 260,
    endLabels: true,
    lines: PROGRAMMES.map((budget) => lineOf(budget, DATA.budgets[budget].name, 2)),
  });
  const families = PROGRAMMES.filter((programme) => !DATA.budgets[programme].leaf);
  const charts = families.map((programme) => {
    const place = PROGRAMMES.indexOf(programme);
    const leaves = LEAVES.filter((leaf) => FAMILY.programme[leaf] === place);
    const prefix = `${DATA.budgets[programme].path}/`;
    return timeChart({
      ...common,
      title: `Leaves of ${DATA.budgets[programme].path}`,
      label: `usage ratio per leaf of ${DATA.budgets[programme].path}`,
      height: 170,
      endLabels: true,
      lines: leaves.map((leaf) => lineOf(leaf, DATA.budgets[leaf].path.replace(prefix, ""), 1.5)),
    });
  });
  const grid = element("div", { class: "many", style: { gridTemplateColumns: "repeat(auto-fill, minmax(min(420px, 100%), 1fr))" } });
  grid.append(...charts.map((chart) => chart.figure));
  part.replaceChildren(top.figure, grid);
  return [top, ...charts];
}

function drawOccupancy(part) {
  const { samples } = POLICIES[state.policy];
  const total = DATA.hosts.reduce((sum, host) => sum + host.gpus, 0);
  const away = samples.at.map((_, at) => Math.max(0, total - samples.allocated[at] - samples.unallocated[at] - samples.idle[at]));
  const areas = [
    { name: "allocated", values: samples.allocated, fill: (colours) => colours.allocated },
    { name: "unallocated", values: samples.unallocated, fill: (colours, id) => `url(#hatch-${id})` },
    { name: "idle", values: samples.idle, fill: (colours) => colours.idle },
    { name: "out of service", values: away, fill: (colours) => colours.away },
  ];
  const legend = element(
    "ul",
    { class: "legend" },
    ...["allocated", "unallocated", "idle", "out of service"].map((name) => element("li", {}, fillKey(name))),
  );
  const common = { at: samples.at, format: (value) => `${whole(value)} GPUs`, wide: true };
  const charts = [
    timeChart({ ...common, title: "Occupancy, GPUs", label: "GPUs by what they are given to", height: 220, areas, most: total, reference: { value: total } }),
    timeChart({
      ...common,
      title: "Fragmented, GPUs",
      label: "idle GPUs on partly occupied hosts",
      height: 120,
      lines: [{ name: "fragmented", values: samples.fragmented, colour: (colours) => colours.ink }],
    }),
    timeChart({
      ...common,
      title: "Waiting, GPUs",
      label: "GPUs asked for by waiting work with a contract",
      height: 140,
      lines: [{ name: "waiting", values: samples.waiting, colour: (colours) => colours.ink }],
    }),
  ];
  charts[0].box.before(legend);
  part.replaceChildren(...charts.map((chart) => chart.figure));
  return charts;
}

const CLASS_NAMES = { debug: "debug (to 15 min, one host)", 1: "1 GPU", all: "all with a contract", unallocated: "no contract" };
const className = (wait) => CLASS_NAMES[wait.class] ?? `${wait.class} GPUs`;
const QUANTILES = ["p50", "p90", "p99", "longest"];

function drawWaits(part) {
  const kind = state.totalWaits ? "totalWaits" : "firstWaits";
  const pick = choice("Wait", "wait-kind", ["to the first start", "in total, requeueing included"], Number(state.totalWaits), (at) => {
    state.totalWaits = at === 1;
    refresh("waits");
    document.querySelector("input[name=wait-kind]:checked")?.focus();
  });
  const legend = element("ul", { class: "legend" });
  QUANTILES.forEach((name, at) => {
    const svg = drawn("svg", { width: 14, height: 14, "aria-hidden": "true" });
    svg.append(mark(at, 7, 7, "currentColor"));
    legend.append(element("li", {}, element("span", { class: "key" }, svg, name)));
  });
  const classes = [...new Set(POLICIES.flatMap((policy) => policy[kind].map((wait) => wait.class)))];
  const box = element("div", { class: "chart", role: "img", "aria-label": "Waits by class and policy. A table follows." });
  const rows = classes.flatMap((name) =>
    POLICIES.flatMap((policy, at) => policy[kind].filter((wait) => wait.class === name).map((wait) => ({ wait, policy, at }))),
  );
  const words = inWords("waits by class", () => ({
    columns: ["class", "policy", "workloads", ...QUANTILES],
    rows: rows.map(({ wait, policy }) => [
      className(wait),
      policy.name,
      whole(wait.count),
      ...wait.quantiles.map((value) => span(value / 1000)),
    ]),
  }));
  part.replaceChildren(element("div", { class: "bar" }, pick), legend, element("figure", {}, box, words));
  box.addEventListener("pointermove", (event) => {
    const found = rows.find((row) => Math.abs(event.clientY - box.getBoundingClientRect().top - row.y) <= 9);
    if (!found) return tip.hide();
    const lines = found.wait.quantiles.map((value, at) => [QUANTILES[at], span(value / 1000)]);
    tip.show(event.clientX, event.clientY, `${className(found.wait)}, ${found.policy.name}`, [["workloads", whole(found.wait.count)], ...lines]);
    return undefined;
  });
  box.addEventListener("pointerleave", () => tip.hide());
  return [{ draw: () => drawWaitRows(box, rows) }];
}

// Marks differ in shape, so that colour says nothing alone.
function mark(at, x, y, colour) {
  const shapes = [
    () => drawn("circle", { cx: x, cy: y, r: 4.2, fill: colour }),
    () => drawn("path", { d: `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z`, fill: colour }),
    () => drawn("path", { d: `M${x} ${y - 5}L${x + 5} ${y + 4}L${x - 5} ${y + 4}Z`, fill: "var(--paper)", stroke: colour, "stroke-width": 1.5 }),
    () => drawn("line", { x1: x, x2: x, y1: y - 6, y2: y + 6, stroke: colour, "stroke-width": 2 }),
  ];
  return shapes[at]();
}

const WAIT_TICKS = [1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000];

function drawWaitRows(box, rows) {
  const colours = palette();
  const width = Math.max(280, box.clientWidth);
  const several = POLICIES.length > 1;
  const narrow = width < 600;
  const left = narrow ? 74 : 190;
  const right = 24;
  const most = Math.max(10, ...rows.map(({ wait }) => wait.quantiles[3] / 1000));
  const x = (seconds) => left + (Math.log10(Math.max(1, seconds)) / Math.log10(most * 1.1)) * (width - left - right);
  const svg = drawn("svg", { width, "aria-hidden": "true" });
  const under = [];
  const over = [];
  let y = 12;
  let before = null;
  for (const row of rows) {
    const { wait } = row;
    if (wait.class !== before) {
      if (before !== null) y += several ? 10 : 4;
      before = wait.class;
      if (narrow || several) {
        over.push(drawn("text", { x: 0, y: y + 4, class: "strong" }, `${className(wait)}, ${whole(wait.count)}`));
        y += 18;
      }
    }
    row.y = y;
    const colour = several ? colours.policies[row.at % colours.policies.length] : colours.ink;
    if (several) over.push(drawn("text", { x: narrow ? 6 : 12, y: y + 4 }, row.policy.name.slice(0, narrow ? 11 : 28)));
    else if (!narrow) over.push(drawn("text", { x: 0, y: y + 4, class: "strong" }, className(wait)));
    const places = wait.quantiles.map((value) => x(value / 1000));
    over.push(drawn("line", { x1: places[0], x2: places[3], y1: y, y2: y, stroke: colour, "stroke-width": 1.2, opacity: 0.6 }));
    for (let at = 3; at >= 0; at--) over.push(mark(at, places[at], y, colour));
    y += 20;
  }
  let free = 0;
  for (const tick of WAIT_TICKS.filter((value) => value <= most * 1.1)) {
    if (x(tick) < free) continue;
    free = x(tick) + 42;
    under.push(
      drawn("line", { x1: x(tick), x2: x(tick), y1: 0, y2: y, stroke: colours.grid }),
      drawn("text", { x: x(tick), y: y + 12, "text-anchor": "middle" }, tick === 1 ? "≤ 1 s" : span(tick)),
    );
  }
  svg.setAttribute("height", y + 18);
  svg.setAttribute("viewBox", `0 0 ${width} ${y + 18}`);
  svg.append(...under, ...over);
  box.replaceChildren(svg);
}

// Keys of legends; drawn with the colours of the moment.
const keys = [];

function lineKey(colour, dash, width, name) {
  const line = drawn("line", { x1: 0, x2: 26, y1: 6, y2: 6, "stroke-width": width, "stroke-dasharray": dash });
  keys.push({ node: line, paint: (colours) => line.setAttribute("stroke", colour(colours)) });
  return element("span", { class: "key" }, drawn("svg", { width: 26, height: 12, "aria-hidden": "true" }, line), name);
}

function fillKey(name) {
  const swatch = element("span", { class: "swatch" });
  const paints = {
    allocated: (c) => c.allocated,
    unallocated: (c) => `repeating-linear-gradient(135deg, ${c.unallocatedLine} 0 1.5px, ${c.unallocated} 1.5px 5px)`,
    idle: (c) => c.idle,
    "out of service": (c) => c.away,
    "host down": (c) => c.away,
    "draining or drained": (c) => {
      const lines = (angle) => `repeating-linear-gradient(${angle}deg, ${c.away} 0 1px, transparent 1px 4px)`;
      return `${lines(45)}, ${lines(135)}, ${c.idle}`;
    },
  };
  keys.push({
    node: swatch,
    paint: (colours) => {
      swatch.style.background = paints[name](colours);
      swatch.style.outline = `1px solid ${colours.lineColour}`;
    },
  });
  return element("span", { class: "key" }, swatch, name);
}

function paintKeys() {
  const colours = palette();
  for (let at = keys.length - 1; at >= 0; at--) {
    if (keys[at].node.isConnected) keys[at].paint(colours);
    else keys.splice(at, 1);
  }
}
