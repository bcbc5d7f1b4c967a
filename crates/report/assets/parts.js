// Small parts of the page. Text is only ever set as textContent: names are names, whatever they contain.

const DRAWING = document.getElementById("seed").namespaceURI;
const saidElement = document.getElementById("said");

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key === "style") Object.assign(made.style, value);
    else if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(DRAWING, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const button = (text, label, act) => {
  const made = element("button", { type: "button", "aria-label": label, title: label }, text);
  made.addEventListener("click", act);
  return made;
};

// Told to those who listen instead of looking.
function say(heading, lines) {
  saidElement.textContent = [heading, ...lines.map(([name, value]) => `${name}: ${value}`)].join(", ");
}

const tip = (() => {
  const box = element("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  document.body.append(box);
  return {
    // Beside a point of the window, or on its other side where there is no room.
    show(x, y, heading, lines) {
      box.replaceChildren(element("b", {}, heading));
      for (const [name, value] of lines) {
        box.append(element("div", {}, element("span", {}, name), element("span", {}, value)));
      }
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      const right = x + 14 + width < innerWidth ? x + 14 : x - 14 - width;
      const below = y + 14 + height < innerHeight ? y + 14 : y - 14 - height;
      box.style.left = `${Math.max(4, Math.min(right, innerWidth - width - 4))}px`;
      box.style.top = `${Math.max(4, below)}px`;
    },
    hide() {
      box.hidden = true;
    },
  };
})();
addEventListener("scroll", () => tip.hide(), { passive: true });

// One of several, as a row of radio buttons.
function choice(legend, name, options, chosen, act) {
  const set = element("fieldset", { class: "choice" }, element("legend", {}, legend));
  options.forEach((option, at) => {
    const input = element("input", { type: "radio", name, value: String(at), checked: at === chosen });
    input.addEventListener("change", () => act(at));
    set.append(element("label", {}, input, option));
  });
  return set;
}

function table(caption, columns, rows) {
  const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col" }, column)));
  const body = rows.map(([first, ...rest]) =>
    element("tr", {}, element("th", { scope: "row" }, first), ...rest.map((cell) => element("td", {}, cell))),
  );
  const made = element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, made);
}

// A picture in words: a table that is made when it is opened.
function inWords(caption, make) {
  const unseen = element("span", { class: "unseen" }, `: ${caption}`);
  const details = element("details", {}, element("summary", {}, "As a table", unseen));
  details.addEventListener("toggle", () => {
    while (details.children.length > 1) details.lastChild.remove();
    if (details.open) {
      const { columns, rows, note } = make();
      if (note) details.append(element("p", { class: "note" }, note));
      details.append(table(caption, columns, rows));
    }
  });
  return details;
}

// About `most` places out of `count`, the last one always.
function thinned(count, most) {
  const step = Math.max(1, Math.ceil(count / most));
  const places = [];
  for (let at = (count - 1) % step; at < count; at += step) places.push(at);
  return { step, places };
}

function later(act) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      act();
    });
  };
}
