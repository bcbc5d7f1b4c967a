// One hue per programme, lightness within it per leaf. The hues keep apart for the common kinds of colour
// blindness; nothing is said by colour alone: bars are hatched, lines dashed, and everything has a name.

const HUES = [255, 62, 165, 345, 105, 215, 300, 30];
const CHROMAS = [0.13, 0.13, 0.11, 0.13, 0.12, 0.1, 0.13, 0.09];
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "12 4", "4 2"];

function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const channels = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const coded = channels.map((channel) => {
    const linear = Math.min(1, Math.max(0, channel));
    const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
    return Math.round(value * 255).toString(16).padStart(2, "0");
  });
  return `#${coded.join("")}`;
}

// The programmes: the first level of the tree that has more than one budget, or the leaves.
const PROGRAMMES = (() => {
  let at = 0;
  for (;;) {
    const children = DATA.budgets.flatMap((budget, place) => (budget.parent === at ? [place] : []));
    if (children.length !== 1 || DATA.budgets[children[0]].leaf) return children;
    at = children[0];
  }
})();

// Per budget the place of its programme, and its own place among the programme's leaves.
const FAMILY = (() => {
  const programme = DATA.budgets.map((budget, at) => {
    let up = at;
    while (up !== null && !PROGRAMMES.includes(up)) up = DATA.budgets[up].parent;
    return up === null ? 0 : PROGRAMMES.indexOf(up);
  });
  const sizes = PROGRAMMES.map(() => 0);
  const place = DATA.budgets.map((budget, at) => (budget.leaf ? sizes[programme[at]]++ : 0));
  return { programme, place, sizes };
})();

const darkQuery = matchMedia("(prefers-color-scheme: dark)");
const isPrint = () => document.documentElement.dataset.theme === "print";
const isDark = () => darkQuery.matches && !isPrint();

function palette() {
  const dark = isDark();
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  const [low, high] = dark ? [0.55, 0.82] : [0.47, 0.76];
  const shade = (at, paler) => {
    const family = FAMILY.programme[at];
    const size = Math.max(1, FAMILY.sizes[family]);
    const part = size > 1 ? FAMILY.place[at] / (size - 1) : 0.4;
    const hue = HUES[family % HUES.length];
    const lightness = low + (high - low) * (DATA.budgets[at].leaf ? part : 0.4);
    const chroma = CHROMAS[family % CHROMAS.length];
    return paler
      ? oklch(dark ? lightness - 0.16 : lightness + 0.13, chroma * 0.62, hue)
      : oklch(lightness, chroma, hue);
  };
  return {
    dark,
    solid: DATA.budgets.map((_, at) => shade(at, false)),
    pale: DATA.budgets.map((_, at) => shade(at, true)),
    // Lines are thin: they stay within lightness that shows.
    line: DATA.budgets.map((_, at) => {
      const family = FAMILY.programme[at];
      return oklch(dark ? 0.74 : 0.53, CHROMAS[family % CHROMAS.length], HUES[family % HUES.length]);
    }),
    policies: [named("ink"), ...[255, 62, 165, 345, 215].map((hue) => oklch(dark ? 0.74 : 0.53, 0.12, hue))],
    ink: named("ink"),
    muted: named("muted"),
    paper: named("paper"),
    lineColour: named("line"),
    grid: named("grid"),
    idle: named("idle"),
    away: named("away"),
    unallocated: named("unallocated"),
    unallocatedLine: named("unallocated-line"),
    preempted: named("preempted"),
    allocated: named("allocated"),
  };
}

const dashOf = (at) => DASHES[(DATA.budgets[at].leaf ? FAMILY.place[at] : 0) % DASHES.length];

// A square of diagonal lines to fill with; `rising` or falling.
function hatch(context, colour, size, width, rising) {
  const scale = context.getTransform().a;
  const tile = document.createElement("canvas");
  const side = Math.max(2, Math.round(size * scale));
  tile.width = tile.height = side;
  const drawing = tile.getContext("2d");
  drawing.strokeStyle = colour;
  drawing.lineWidth = width * scale;
  drawing.beginPath();
  for (const shift of [-side, 0, side]) {
    drawing.moveTo(shift - 1, rising ? side + 1 : -1);
    drawing.lineTo(shift + side + 1, rising ? -1 : side + 1);
  }
  drawing.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}
