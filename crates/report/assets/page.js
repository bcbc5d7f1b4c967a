// Puts the parts together, and draws them again when the width, the colours or the policy change.

const place = (id) => document.querySelector(`#${id} .drawn`);
const makers = { delivered: drawDelivered, ratios: drawRatios, waits: drawWaits, occupancy: drawOccupancy };
const charts = {};

function refresh(id) {
  charts[id] = makers[id](place(id));
  for (const chart of charts[id]) chart.draw?.();
  paintKeys();
}

function redrawAll() {
  timeline?.resize();
  for (const list of Object.values(charts)) for (const chart of list) chart.draw?.();
  paintKeys();
}

function showPolicy(at) {
  state.policy = at;
  tip.hide();
  if (timeline) {
    timeline.selected = null;
    timeline.resize();
  }
  for (const id of ["delivered", "ratios", "occupancy"]) refresh(id);
}

const timeline = POLICIES.length > 0 ? new Timeline(place("timeline")) : null;
if (POLICIES.length > 1) {
  const holder = document.getElementById("switch");
  const names = POLICIES.map((policy) => policy.name);
  holder.append(choice("Policy shown below", "policy", names, 0, showPolicy));
  holder.hidden = false;
}
if (timeline) {
  timeline.resize();
  for (const id of Object.keys(makers)) refresh(id);
}

let width = innerWidth;
addEventListener("resize", later(() => {
  if (innerWidth === width) return;
  width = innerWidth;
  redrawAll();
}));
darkQuery.addEventListener("change", redrawAll);
// Paper is light.
addEventListener("beforeprint", () => {
  document.documentElement.dataset.theme = "print";
  redrawAll();
});
addEventListener("afterprint", () => {
  delete document.documentElement.dataset.theme;
  redrawAll();
});
