// The timeline in use: its buttons and legend; wheel, drag and keys; and what it tells of a bar.

class Timeline extends TimelineView {
  constructor(part) {
    super();
    this.part = part;
    this.redraw = later(() => this.draw());
    this.build();
    this.listen();
  }

  build() {
    const zoom = (factor) => () => this.zoom(factor);
    const move = (part) => () => this.pan((this.to - this.from) * part);
    const tall = (factor) => () => this.stretch(factor);
    const bar = element(
      "div",
      { class: "bar", role: "group", "aria-label": "Zoom" },
      button("whole run", "Show the whole run", () => this.show(0, this.whole)),
      button("−", "Zoom out", zoom(2)),
      button("+", "Zoom in", zoom(0.5)),
      button("◀", "Earlier", move(-0.4)),
      button("▶", "Later", move(0.4)),
      button("lower rows", "Make rows lower", tall(1 / 1.5)),
      button("higher rows", "Make rows higher", tall(1.5)),
      element(
        "p",
        { class: "note" },
        "Drag to move, Shift-drag to zoom into a span, Ctrl-wheel or double click to zoom. Keys: arrows, + and −, 0 for the whole run, , and . for the attempts of a row.",
      ),
    );
    this.legend = element("ul", { class: "legend", "aria-label": "Budgets; press one to see it alone" });
    this.joined = element("p", { class: "note" });
    this.part.replaceChildren(
      bar,
      this.rows,
      this.legend,
      this.joined,
      inWords("attempts in the span shown", () => this.words()),
    );
    this.fillLegend();
  }

  // Budgets by programme, then what the fills mean.
  fillLegend() {
    const press = (only) => () => {
      state.only = state.only === only ? null : only;
      for (const [pressed, at] of this.pressed) pressed.setAttribute("aria-pressed", String(state.only === at));
      this.redraw();
    };
    this.pressed = [];
    const entry = (at, text) => {
      const swatch = element("span", { class: "swatch" });
      keys.push({ node: swatch, paint: (colours) => (swatch.style.background = colours.solid[at]) });
      const made = element("button", { type: "button", "aria-pressed": "false" }, ...(DATA.budgets[at].leaf ? [swatch] : []), text);
      made.addEventListener("click", press(at));
      this.pressed.push([made, at]);
      return made;
    };
    for (const programme of PROGRAMMES) {
      const { path, leaf } = DATA.budgets[programme];
      const group = element("li", { class: "group" }, entry(programme, path));
      if (!leaf) {
        const place = PROGRAMMES.indexOf(programme);
        for (const at of LEAVES.filter((candidate) => FAMILY.programme[candidate] === place)) {
          group.append(entry(at, DATA.budgets[at].path.replace(`${path}/`, "")));
        }
      }
      this.legend.append(group);
    }
    const key = (name, paint) => {
      const swatch = element("span", { class: "swatch" });
      keys.push({ node: swatch, paint: (colours) => paint(swatch.style, colours) });
      return element("span", { class: "key" }, swatch, name);
    };
    const first = LEAVES[0] ?? 0;
    this.legend.append(
      element(
        "li",
        { class: "group" },
        element("span", { class: "of" }, "fills:"),
        key("protected", (style, c) => (style.background = c.solid[first])),
        key("interruptible", (style, c) => {
          style.background = `repeating-linear-gradient(135deg, ${c.paper} 0 1.5px, ${c.solid[first]} 1.5px 5px)`;
        }),
        key("preempted", (style, c) => {
          style.background = c.solid[first];
          style.borderRight = `3px solid ${c.preempted}`;
        }),
        fillKey("unallocated"),
        fillKey("idle"),
        ...(DATA.absences.some(({ drain }) => !drain) ? [fillKey("host down")] : []),
        ...(DATA.absences.some(({ drain }) => drain) ? [fillKey("draining or drained")] : []),
      ),
    );
  }

  show(from, to) {
    const least = Math.min(this.whole, 10 * SECOND);
    const length = Math.min(this.whole, Math.max(least, to - from));
    const middle = (from + to) / 2;
    this.from = Math.max(0, Math.min(this.whole - length, middle - length / 2));
    this.to = this.from + length;
    this.redraw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const from = around - (around - this.from) * factor;
    this.show(from, from + (this.to - this.from) * factor);
  }

  pan(units) {
    this.show(this.from + units, this.to + units);
  }

  stretch(factor) {
    this.gpuHeight = Math.min(40, Math.max(0.4, this.gpuHeight * factor));
    this.measure();
    this.redraw();
  }

  resize() {
    this.measure();
    this.draw();
  }

  // Selects a bar, shows it in words, and says it when asked by key.
  select(found, x, y, aloud) {
    this.selected = found && found.bar !== null ? found : null;
    this.redraw();
    if (!this.selected) return tip.hide();
    const { heading, lines } = this.describe(found.host, found.bar);
    tip.show(x, y, heading, lines);
    if (aloud) say(heading, lines);
    return undefined;
  }

  // The next or previous bar of the row that the keyboard is in.
  step(by) {
    const { bars } = this.policy;
    const list = [...new Set(bars.pieces[this.row].bar)];
    if (list.length === 0) return say(DATA.hosts[this.row].name, [["attempts", "none"]]);
    let place = list.indexOf(this.selected?.bar);
    if (place < 0) {
      place = list.findIndex((bar) => bars.start[bar] >= this.from);
      if (place < 0) place = list.length - 1;
    } else place = Math.max(0, Math.min(list.length - 1, place + by));
    const bar = list[place];
    const [start, end] = [bars.start[bar], bars.end[bar]];
    if (end < this.from || start > this.to) this.show(start - (this.to - this.from) / 2, start + (this.to - this.from) / 2);
    const bounds = this.rows.getBoundingClientRect();
    const x = Math.max(this.gutter, Math.min(this.width, this.x((start + end) / 2)));
    const y = AXIS + this.tops[this.row] - this.rows.scrollTop;
    return this.select({ host: this.row, bar }, bounds.left + x, bounds.top + y + 10, true);
  }

  toRow(by) {
    this.row = Math.max(0, Math.min(DATA.hosts.length - 1, this.row + by));
    const [top, bottom] = [this.tops[this.row], this.tops[this.row + 1]];
    if (top < this.rows.scrollTop) this.rows.scrollTop = top;
    if (bottom > this.rows.scrollTop + this.height - AXIS) this.rows.scrollTop = bottom - this.height + AXIS;
    this.selected = null;
    tip.hide();
    const { name, gpus } = DATA.hosts[this.row];
    say(name, [["GPUs", String(gpus)]]);
    this.redraw();
  }

  listen() {
    const { rows } = this;
    const place = (event) => {
      const bounds = rows.getBoundingClientRect();
      return [event.clientX - bounds.left - 1, event.clientY - bounds.top - 1];
    };
    rows.addEventListener("scroll", () => this.redraw(), { passive: true });
    rows.addEventListener("focus", () => this.redraw());
    rows.addEventListener("blur", () => {
      tip.hide();
      this.redraw();
    });
    rows.addEventListener(
      "wheel",
      (event) => {
        const fits = this.tops[DATA.hosts.length] <= this.height - AXIS + 2;
        const zooms = event.ctrlKey || event.metaKey || (fits && document.activeElement === rows);
        if (zooms) this.zoom(2 ** (event.deltaY / 300), this.units(place(event)[0]));
        else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          this.pan((((event.deltaX || event.deltaY) * 1) / this.width) * (this.to - this.from));
        } else return;
        event.preventDefault();
        tip.hide();
      },
      { passive: false },
    );
    let held = null;
    rows.addEventListener("pointerdown", (event) => {
      const [x] = place(event);
      if (event.button !== 0 || x >= this.width) return;
      held = { x, from: this.from, to: this.to, moved: false, marks: event.shiftKey };
    });
    rows.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (held && Math.abs(x - held.x) > 3 && !held.moved) {
        held.moved = true;
        rows.setPointerCapture(event.pointerId);
      }
      if (!held?.moved) return this.hover(event, x, y);
      tip.hide();
      if (held.marks) return this.mark(held.x, x);
      const by = ((held.x - x) / (this.width - this.gutter)) * (held.to - held.from);
      return this.show(held.from + by, held.to + by);
    });
    const release = (event) => {
      if (held?.moved && held.marks) {
        const ends = [held.x, place(event)[0]].map((x) => this.units(x)).sort((one, other) => one - other);
        this.show(...ends);
      } else if (held && !held.moved) {
        const found = this.hit(...place(event));
        if (found) this.row = found.host;
        this.select(found, event.clientX, event.clientY, false);
      }
      held = null;
    };
    rows.addEventListener("pointerup", release);
    rows.addEventListener("pointercancel", () => (held = null));
    rows.addEventListener("pointerleave", () => tip.hide());
    rows.addEventListener("dblclick", (event) => this.zoom(0.4, this.units(place(event)[0])));
    rows.addEventListener("keydown", (event) => this.key(event));
  }

  hover(event, x, y) {
    const found = this.hit(x, y);
    if (!found || found.bar === null) return tip.hide();
    const { heading, lines } = this.describe(found.host, found.bar);
    return tip.show(event.clientX, event.clientY, heading, lines);
  }

  mark(one, other) {
    this.draw();
    this.context.fillStyle = this.colours.dark ? "rgba(255,255,255,.18)" : "rgba(0,0,0,.14)";
    this.context.fillRect(Math.min(one, other), AXIS, Math.abs(other - one), this.height);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const length = this.to - this.from;
    const acts = {
      ArrowLeft: () => this.pan(-length * 0.2),
      ArrowRight: () => this.pan(length * 0.2),
      ArrowUp: () => this.toRow(-1),
      ArrowDown: () => this.toRow(1),
      PageUp: () => this.toRow(-10),
      PageDown: () => this.toRow(10),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.show(0, this.whole),
      Home: () => this.show(0, length),
      End: () => this.show(this.whole - length, this.whole),
      ",": () => this.step(-1),
      ".": () => this.step(1),
      Escape: () => this.select(null),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }
}
