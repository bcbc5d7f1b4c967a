// The timeline as a picture: a row per GPU, or per host whose GPUs are stripes of it. Drawn on a canvas that stays in
// view while the rows scroll.

const AXIS = 24;

class TimelineView {
  constructor() {
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.space = element("div", { class: "space" });
    this.rows = element(
      "div",
      {
        class: "rows",
        tabindex: "0",
        role: "application",
        "aria-roledescription": "timeline",
        "aria-label": "Timeline of attempts per host. Arrow keys move through it, plus and minus zoom, comma and full stop step through the attempts of a host. A table follows.",
      },
      this.canvas,
      this.space,
    );
    this.from = 0;
    this.to = Math.max(1, ...POLICIES.map((policy) => policy.ended));
    this.whole = this.to;
    this.gpuHeight = null;
    this.selected = null; // {host, bar}
    this.row = 0;
  }

  get policy() {
    return POLICIES[state.policy];
  }

  // Sizes that follow from the window and the cluster.
  measure() {
    const gpus = DATA.hosts.reduce((sum, host) => sum + host.gpus, 0);
    this.width = this.rows.clientWidth;
    this.gutter = this.width < 600 ? 58 : 96;
    if (this.gpuHeight === null) {
      const room = DATA.row_per_gpu ? 560 - DATA.hosts.length * 3 : 680;
      this.gpuHeight = Math.min(18, Math.max(DATA.row_per_gpu ? 5 : 0.5, room / gpus));
    }
    // A gap between low rows would look like stripes.
    const rowHeight = this.gpuHeight * (gpus / DATA.hosts.length);
    this.gap = DATA.row_per_gpu ? 3 : rowHeight < 7 ? 0 : 1;
    this.tops = new Float64Array(DATA.hosts.length + 1);
    DATA.hosts.forEach((host, at) => {
      const height = Math.max(3, host.gpus * this.gpuHeight);
      this.tops[at + 1] = this.tops[at] + height + this.gap;
    });
    const all = this.tops[DATA.hosts.length];
    // Paper does not scroll: it gets all rows, as far as a page goes.
    const most = isPrint() ? 1600 : Math.min(760, Math.max(300, innerHeight * 0.85));
    this.height = Math.round(Math.min(all + AXIS + 2, most));
    this.rows.style.height = `${this.height + 2}px`;
    this.space.style.height = `${all + AXIS}px`;
    const scale = devicePixelRatio || 1;
    this.width = this.rows.clientWidth;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    const { joinedBelow } = this.policy;
    this.joined.textContent =
      joinedBelow > 0
        ? `There are more attempts than can be drawn. Those on one host and under ${span(joinedBelow / SECOND)} are added up: what each budget had of the host, on average over ${span(joinedBelow / SECOND)}.`
        : "";
  }

  x(units) {
    return this.gutter + ((units - this.from) / (this.to - this.from)) * (this.width - this.gutter);
  }

  units(x) {
    return this.from + ((x - this.gutter) / (this.width - this.gutter)) * (this.to - this.from);
  }

  isShown(leaf) {
    if (state.only === null) return true;
    for (let at = leaf; at !== null; at = DATA.budgets[at].parent) if (at === state.only) return true;
    return false;
  }

  draw() {
    const { context, width, height, gutter } = this;
    const colours = palette();
    this.colours = colours;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    const top = this.rows.scrollTop;
    const [first, last] = this.hostsInView(top);
    context.save();
    context.beginPath();
    context.rect(gutter, AXIS, width - gutter, height - AXIS);
    context.clip();
    context.fillStyle = colours.idle;
    for (let host = first; host < last; host++) {
      context.fillRect(gutter, AXIS + this.tops[host] - top, width - gutter, this.tops[host + 1] - this.tops[host] - this.gap);
    }
    this.drawAbsences(first, last, top);
    this.drawBars(first, last, top);
    if (this.policy.measured < this.policy.ended) this.drawEndOfSpan();
    context.restore();
    this.drawLabels(first, last, top);
    this.drawAxis();
  }

  hostsInView(top) {
    let first = 0;
    while (first < DATA.hosts.length - 1 && this.tops[first + 1] <= top) first++;
    let last = first;
    while (last < DATA.hosts.length && this.tops[last] < top + this.height - AXIS) last++;
    return [first, last];
  }

  drawAbsences(first, last, top) {
    const { context, colours } = this;
    for (const { host, from, to, drain } of DATA.absences) {
      if (host < first || host >= last || to < this.from || from > this.to) continue;
      // Crossed where a drain holds new work off, plain where the host is down.
      const fills = drain ? [false, true].map((rising) => hatch(context, colours.away, 6, 1, rising)) : [colours.away];
      const left = this.x(from);
      for (const fill of fills) {
        context.fillStyle = fill;
        context.fillRect(left, AXIS + this.tops[host] - top, Math.max(1, this.x(to) - left), this.tops[host + 1] - this.tops[host] - this.gap);
      }
    }
  }

  // Rectangles are gathered by fill, so that few fills are set for many rectangles.
  drawBars(first, last, top) {
    const { context, colours } = this;
    const { bars } = this.policy;
    const fills = new Map();
    const put = (fill, x, y, w, h) => {
      let list = fills.get(fill);
      if (!list) fills.set(fill, (list = []));
      list.push(x, y, w, h);
    };
    const edges = [];
    const chosen = [];
    const shown = DATA.budgets.map((_, at) => this.isShown(at));
    const faded = colours.dark ? "#2f3438" : "#e0e0de";
    for (let host = first; host < last; host++) {
      const pieces = bars.pieces[host];
      const base = AXIS + this.tops[host] - top;
      const each = (this.tops[host + 1] - this.tops[host] - this.gap) / DATA.hosts[host].gpus;
      const line = each >= 5 ? 1 : 0;
      for (let piece = 0; piece < pieces.bar.length; piece++) {
        const bar = pieces.bar[piece];
        if (bars.start[bar] > this.to) break;
        if (bars.end[bar] < this.from) continue;
        const left = Math.max(this.x(bars.start[bar]), this.gutter - 4);
        const right = Math.min(this.x(bars.end[bar]), this.width + 4);
        // A seam between attempts, where there is room for one.
        const seam = right - left > 4 && bars.workload[bar] >= 0 ? 0.6 : 0;
        const wide = Math.max(0.4, right - left - seam);
        const y = base + pieces.lane[piece] * each;
        const high = pieces.lanes[piece] * each - line;
        const leaf = bars.leaf[bar];
        if (!shown[leaf]) put(faded, left, y, wide, high);
        else if (!bars.allocated[bar]) {
          put(colours.unallocated, left, y, wide, high);
          if (wide >= 3) put("unallocated", left, y, wide, high);
        } else {
          const safe = Math.min(right, Math.max(left, this.x(bars.protectedUntil[bar])));
          if (safe > left) put(colours.solid[leaf], left, y, Math.min(wide, safe - left), high);
          const rest = left + wide - safe;
          if (rest >= 3) {
            put(colours.solid[leaf], safe, y, rest, high);
            put("interruptible", safe, y, rest, high);
          } else if (rest > 0) put(colours.pale[leaf], safe, y, rest, high);
          else if (safe <= left) put(colours.pale[leaf], left, y, wide, high);
        }
        const preempted = bars.why[bar] === END_REQUEUED || bars.why[bar] === END_TERMINATED;
        if (preempted && shown[leaf]) {
          const edge = Math.min(2, Math.max(0.5, wide * 0.3));
          edges.push(left + wide - edge, y, edge, high);
        }
        if (this.selected?.bar === bar) chosen.push([left, y, wide, high]);
      }
    }
    const hatches = {
      unallocated: () => hatch(context, colours.unallocatedLine, 5, 1, false),
      interruptible: () => hatch(context, colours.dark ? "rgba(20,22,24,.62)" : "rgba(255,255,255,.6)", 5, 1.3, true),
    };
    for (const name of Object.keys(hatches)) {
      const list = fills.get(name);
      if (list) {
        fills.delete(name);
        fills.set(hatches[name](), list);
      }
    }
    for (const [fill, list] of fills) fillAll(context, fill, list);
    fillAll(context, colours.preempted, edges);
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    for (const [x, y, w, h] of chosen) context.strokeRect(x - 1, y - 1, w + 2, Math.max(2, h) + 2);
  }

  drawEndOfSpan() {
    const { context, colours } = this;
    const at = this.x(this.policy.measured);
    context.strokeStyle = colours.ink;
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(at, AXIS);
    context.lineTo(at, this.height);
    context.stroke();
    context.setLineDash([]);
  }

  drawLabels(first, last, top) {
    const { context, colours, gutter } = this;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    const numbers = DATA.row_per_gpu && this.gpuHeight >= 11 ? 16 : 0;
    let free = AXIS - 7;
    for (let host = first; host < last; host++) {
      const middle = AXIS - top + (this.tops[host] + this.tops[host + 1] - this.gap) / 2;
      if (middle - 6 < free) continue;
      context.fillStyle = host === this.row && document.activeElement === this.rows ? colours.ink : colours.muted;
      context.fillText(fitted(context, DATA.hosts[host].name, gutter - numbers - 8), gutter - numbers - 5, middle);
      free = middle + 7;
    }
    if (numbers > 0) this.drawNumbers(first, last, top);
    if (document.activeElement === this.rows) {
      context.fillStyle = colours.ink;
      const y = AXIS - top + this.tops[this.row];
      if (y > AXIS - 1) context.fillRect(gutter - 3, y, 3, this.tops[this.row + 1] - this.tops[this.row] - this.gap);
    }
  }

  // The numbers of GPUs within their host, where there is room.
  drawNumbers(first, last, top) {
    const { context, colours, gutter } = this;
    context.font = "9px system-ui, sans-serif";
    context.fillStyle = colours.muted;
    for (let host = first; host < last; host++) {
      for (let gpu = 0; gpu < DATA.hosts[host].gpus; gpu++) {
        const middle = AXIS - top + this.tops[host] + (gpu + 0.5) * this.gpuHeight;
        if (middle > AXIS) context.fillText(String(gpu), gutter - 5, middle);
      }
    }
  }

  drawAxis() {
    const { context, colours, gutter, width } = this;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, AXIS - 1);
    context.strokeStyle = colours.lineColour;
    context.lineWidth = 1;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    context.font = "11px system-ui, sans-serif";
    const { step, ticks } = timeTicks(this.from / SECOND, this.to / SECOND, Math.max(2, (width - gutter) / 70));
    context.beginPath();
    for (const tick of ticks) {
      const at = this.x(tick * SECOND);
      context.moveTo(at, AXIS - 6);
      context.lineTo(at, AXIS - 1);
      context.fillStyle = colours.ink;
      context.fillText(tickLabel(tick, step), Math.min(at, width - 16), AXIS - 9);
    }
    context.stroke();
    context.textAlign = "left";
    context.fillStyle = colours.muted;
    context.fillText(ticks.length > 0 && this.from > 0 ? moment(this.from / SECOND).slice(0, -3) : "time", 4, AXIS - 9);
  }

  // The bar at a point of the canvas.
  hit(x, y) {
    if (x < this.gutter || y < AXIS) return null;
    const level = y - AXIS + this.rows.scrollTop;
    let host = 0;
    while (host < DATA.hosts.length && this.tops[host + 1] <= level) host++;
    if (host >= DATA.hosts.length) return null;
    const each = (this.tops[host + 1] - this.tops[host] - this.gap) / DATA.hosts[host].gpus;
    const lane = Math.floor((level - this.tops[host]) / each);
    const at = this.units(x);
    const { bars } = this.policy;
    const pieces = bars.pieces[host];
    const slack = (this.to - this.from) / this.width;
    let best = null;
    for (let piece = 0; piece < pieces.bar.length; piece++) {
      const bar = pieces.bar[piece];
      if (bars.start[bar] > at + slack) break;
      if (bars.end[bar] < at - slack || lane < pieces.lane[piece] || lane >= pieces.lane[piece] + pieces.lanes[piece]) continue;
      if (best === null || (bars.start[bar] <= at && bars.end[bar] >= at)) best = bar;
    }
    return { host, bar: best };
  }

  // A bar in words: a heading and named lines.
  describe(host, bar) {
    const { bars } = this.policy;
    const at = (units) => moment(units / SECOND);
    const budget = DATA.budgets[bars.leaf[bar]].path;
    const lines = [["budget", bars.allocated[bar] ? budget : `${budget} (unallocated: charged to nobody)`]];
    const hosts = bars.hosts[bar] > 1 ? `on ${bars.hosts[bar]} hosts, here ${DATA.hosts[host].name}` : `on ${DATA.hosts[host].name}`;
    const length = [`${at(bars.start[bar])} to ${at(bars.end[bar])}`, span((bars.end[bar] - bars.start[bar]) / SECOND)];
    if (bars.workload[bar] < 0) {
      lines.push(["GPUs", `${bars.gpus[bar]} ${hosts}, on average`], ["started", plural(bars.attempt[bar], "attempt")], ["from, to", length[0]]);
      return { heading: "short attempts, added up", lines };
    }
    lines.push(["attempt", String(bars.attempt[bar])], ["GPUs", `${whole(bars.gpus[bar])} ${hosts}`]);
    if (bars.attempt[bar] === 1) {
      const waited = bars.start[bar] - WORKLOADS.submitted[bars.workload[bar]];
      lines.push(["waited", span(waited / SECOND)]);
    } else lines.push(["submitted", at(WORKLOADS.submitted[bars.workload[bar]])]);
    lines.push(["ran", length[0]], ["for", length[1]]);
    const cut = bars.protectedUntil[bar] >= bars.end[bar];
    const guarded = bars.protectedUntil[bar] > bars.start[bar];
    lines.push(["protected until", !guarded ? "never" : cut ? "its end" : at(bars.protectedUntil[bar])]);
    lines.push(["ended", ENDS[bars.why[bar]]]);
    return { heading: WORKLOADS.names[bars.workload[bar]], lines };
  }

  words() {
    const { bars } = this.policy;
    const most = 200;
    const rows = [];
    let count = 0;
    const hostOf = new Map();
    DATA.hosts.forEach((_, host) => {
      for (const bar of bars.pieces[host].bar) if (!hostOf.has(bar)) hostOf.set(bar, host);
    });
    for (let bar = 0; bar < bars.count; bar++) {
      if (bars.end[bar] < this.from || bars.start[bar] > this.to || !this.isShown(bars.leaf[bar])) continue;
      if (count++ >= most) continue;
      const { heading, lines } = this.describe(hostOf.get(bar) ?? 0, bar);
      const named = new Map(lines);
      const columns = ["budget", "attempt", "GPUs", "ran", "protected until", "ended"];
      rows.push([heading, ...columns.map((column) => named.get(column) ?? named.get("from, to") ?? "")]);
    }
    const note = count > most ? `The first ${most} of ${whole(count)}; zoom in and open this again to see others.` : `${plural(count, "attempt")}.`;
    return { columns: ["workload", "budget", "attempt", "GPUs", "ran", "protected until", "ended"], rows, note };
  }
}

function fillAll(context, fill, list) {
  context.fillStyle = fill;
  for (let at = 0; at < list.length; at += 4) context.fillRect(list[at], list[at + 1], list[at + 2], list[at + 3]);
}

function fitted(context, text, room) {
  let kept = text;
  while (kept.length > 2 && context.measureText(kept).width > room) kept = `…${kept.slice(2)}`;
  return kept;
}
