// A chart of lines and stacked areas over time, with a cursor for pointer and arrow keys.
//
// options: {title, unit, height, at: seconds[], lines: [{name, values, colour, dash, width, step}],
//           areas: [{name, values, fill}] (stacked in order), reference: {value, name}, format, label}

function lineChart(options) {
  const box = element("div", {
    class: "chart",
    tabindex: "0",
    role: "img",
    "aria-label": `${options.label}. Left and right arrow read values; a table follows.`,
  });
  const caption = element("h3", {}, options.title);
  const figure = element("figure", { class: options.wide ? "wide" : "" }, caption, box);
  if (options.note) caption.after(element("p", { class: "note" }, options.note));
  const chart = { figure, box, options, cursor: null };
  const { at } = options;
  if (at.length === 0) {
    box.replaceWith(element("p", { class: "note" }, "No readings: the run is shorter than an hour, or was played without them."));
    return chart;
  }
  chart.draw = () => drawLines(chart);
  const move = (place, x, y) => {
    chart.cursor = Math.max(0, Math.min(at.length - 1, place));
    const line = chart.cursorLine;
    line.setAttribute("x1", chart.x(at[chart.cursor]));
    line.setAttribute("x2", chart.x(at[chart.cursor]));
    line.setAttribute("visibility", "visible");
    const bounds = box.getBoundingClientRect();
    const lines = readings(options, chart.cursor);
    tip.show(x ?? bounds.left + chart.x(at[chart.cursor]), y ?? bounds.top + 20, moment(at[chart.cursor]), lines);
    return lines;
  };
  const leave = () => {
    chart.cursorLine?.setAttribute("visibility", "hidden");
    tip.hide();
  };
  box.addEventListener("pointermove", (event) => {
    const seconds = chart.seconds(event.clientX - box.getBoundingClientRect().left);
    let place = 0;
    while (place < at.length - 1 && Math.abs(at[place + 1] - seconds) <= Math.abs(at[place] - seconds)) place++;
    move(place, event.clientX, event.clientY);
  });
  box.addEventListener("pointerleave", leave);
  box.addEventListener("blur", leave);
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -24, PageDown: 24, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return leave();
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return undefined;
    event.preventDefault();
    const from = chart.cursor ?? (steps[event.key] > 0 ? -1 : at.length);
    const lines = move(from + steps[event.key]);
    say(moment(at[chart.cursor]), lines);
    return undefined;
  });
  figure.append(
    inWords(options.label, () => {
      const { step, places } = thinned(at.length, 60);
      const columns = ["time", ...readings(options, 0).map(([name]) => name)];
      const rows = places.map((place) => [moment(at[place]), ...readings(options, place).map(([, value]) => value)]);
      return { columns, rows, note: step > 1 ? `Every ${step}th of ${at.length} readings.` : undefined };
    }),
  );
  return chart;
}

function readings({ lines = [], areas = [], format }, place) {
  return [...areas, ...lines].map((line) => [line.name, format(line.values[place])]);
}

function drawLines(chart) {
  const { box, options } = chart;
  const { at, lines = [], areas = [], reference, height } = options;
  const colours = palette();
  const width = Math.max(200, box.clientWidth);
  const named = options.endLabels ? Math.min(150, width * 0.25) : 8;
  const [left, right, top, bottom] = [40, named, 8, 20];
  const [from, to] = [options.from ?? 0, options.to ?? at[at.length - 1]];
  const stacked = at.length > 0 ? stack(areas) : [];
  let most = reference ? reference.value : 0;
  for (const { values } of lines) for (const value of values) most = Math.max(most, value);
  if (stacked.length > 0) for (const value of stacked[stacked.length - 1]) most = Math.max(most, value);
  most = Math.min(most, options.most ?? Infinity);
  const ticks = numberTicks(most, height > 150 ? 5 : 3);
  const ceiling = ticks[ticks.length - 1];
  const x = (seconds) => left + ((seconds - from) / Math.max(1, to - from)) * (width - left - right);
  const y = (value) => top + (1 - Math.min(value, ceiling) / ceiling) * (height - top - bottom);
  chart.x = x;
  chart.seconds = (pixels) => from + ((pixels - left) / (width - left - right)) * (to - from);
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  svg.append(hatchPattern(colours, options.id));
  for (const tick of ticks) {
    svg.append(
      drawn("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: colours.grid }),
      drawn("text", { x: left - 5, y: y(tick) + 4, "text-anchor": "end" }, options.tick ? options.tick(tick) : short(tick)),
    );
  }
  const time = timeTicks(from, to, Math.max(2, (width - left - right) / 58));
  for (const tick of time.ticks) {
    svg.append(
      drawn("line", { x1: x(tick), x2: x(tick), y1: height - bottom, y2: height - bottom + 4, stroke: colours.lineColour }),
      drawn("text", { x: x(tick), y: height - 4, "text-anchor": "middle" }, tickLabel(tick, time.step)),
    );
  }
  areas.forEach((area, place) => {
    const under = place > 0 ? stacked[place - 1] : null;
    svg.append(drawn("path", { d: areaPath(at, stacked[place], under, x, y), fill: area.fill(colours, options.id), stroke: "none" }));
  });
  if (reference) {
    const level = y(reference.value);
    svg.append(drawn("line", { x1: left, x2: width - right, y1: level, y2: level, stroke: colours.muted, "stroke-dasharray": "1 3" }));
  }
  for (const line of lines) {
    svg.append(
      drawn("path", {
        d: linePath(at, line.values, x, y, line.step ? x(from) : null),
        fill: "none",
        stroke: line.colour(colours),
        "stroke-width": line.width ?? 1.6,
        "stroke-dasharray": line.dash ?? "",
        "stroke-linejoin": "round",
      }),
    );
  }
  if (options.endLabels) endLabels(svg, lines, colours, width - right + 6, y, [top, height - bottom], named - 8);
  chart.cursorLine = drawn("line", { y1: top, y2: height - bottom, stroke: colours.muted, visibility: "hidden" });
  svg.append(chart.cursorLine);
  box.replaceChildren(svg);
}

function stack(areas) {
  const sums = [];
  for (const { values } of areas) {
    const under = sums[sums.length - 1];
    sums.push(Array.from(values, (value, place) => value + (under ? under[place] : 0)));
  }
  return sums;
}

const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

// A line through the readings; with `from`, each holds for the time that ends with it.
function linePath(at, values, x, y, from) {
  let path = "";
  for (let place = 0; place < at.length; place++) {
    const [here, level] = [x(at[place]), y(values[place])];
    if (from === null) path += (place === 0 ? "M" : "L") + point(here, level);
    else path += `${place === 0 ? "M" : "L"}${point(place === 0 ? from : x(at[place - 1]), level)}L${point(here, level)}`;
  }
  return path;
}

function areaPath(at, upper, lower, x, y) {
  let path = "";
  for (let place = 0; place < at.length; place++) path += (place === 0 ? "M" : "L") + point(x(at[place]), y(upper[place]));
  for (let place = at.length - 1; place >= 0; place--) path += `L${point(x(at[place]), y(lower ? lower[place] : 0))}`;
  return `${path}Z`;
}

// Names at the ends of their lines, pushed apart where they would overlap.
function endLabels(svg, lines, colours, x, y, [top, bottom], room) {
  const labels = lines.map((line) => ({ line, at: y(line.values[line.values.length - 1] ?? 0) }));
  labels.sort((one, other) => one.at - other.at);
  const gap = Math.min(13, (bottom - top) / Math.max(1, labels.length));
  labels.forEach((label, place) => {
    label.at = Math.max(label.at, place > 0 ? labels[place - 1].at + gap : top + 4);
  });
  for (let place = labels.length - 1; place >= 0; place--) {
    const limit = place === labels.length - 1 ? bottom : labels[place + 1].at - gap;
    labels[place].at = Math.min(labels[place].at, limit);
  }
  for (const { line, at } of labels) {
    const colour = line.colour(colours);
    svg.append(drawn("line", { x1: x, x2: x + 16, y1: at, y2: at, stroke: colour, "stroke-width": 2, "stroke-dasharray": line.dash ?? "" }));
    const letters = Math.max(3, Math.floor((room - 20) / 6));
    const name = line.name.length > letters ? `${line.name.slice(0, letters - 1)}…` : line.name;
    svg.append(drawn("text", { x: x + 20, y: at + 4, class: "strong" }, name));
  }
}

function hatchPattern(colours, id) {
  const pattern = drawn("pattern", { id: `hatch-${id}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" });
  pattern.append(
    drawn("rect", { width: 6, height: 6, fill: colours.unallocated }),
    drawn("line", { x1: 0, x2: 6, y1: 3, y2: 3, stroke: colours.unallocatedLine, "stroke-width": 1.5 }),
  );
  return drawn("defs", {}, pattern);
}
