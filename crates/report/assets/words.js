// Numbers and times as people read them. Times are elapsed time since the start of the run.

const whole = (number) => Math.round(number).toLocaleString("en-US");
const percent = (number) => `${(number * 100).toFixed(1)} %`;
const plural = (count, one) => `${whole(count)} ${one}${count === 1 ? "" : "s"}`;

function short(number) {
  const size = Math.abs(number);
  if (size >= 1e6) return `${Number((number / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((number / 1e3).toPrecision(3))}k`;
  if (size >= 100 || Number.isInteger(number)) return whole(number);
  return String(Number(number.toPrecision(2)));
}

const padded = (number) => String(number).padStart(2, "0");

// 3 d 04:10:05
function moment(seconds) {
  const all = Math.floor(seconds);
  const days = Math.floor(all / 86400);
  const clock = `${padded(Math.floor(all / 3600) % 24)}:${padded(Math.floor(all / 60) % 60)}:${padded(all % 60)}`;
  return days > 0 ? `${days} d ${clock}` : clock;
}

// Two units at most: 2 h 30 min
function span(seconds) {
  if (seconds < 1 && seconds > 0) return "under 1 s";
  const all = Math.round(seconds);
  const two = (first, one, rest, other) => (rest > 0 ? `${first} ${one} ${rest} ${other}` : `${first} ${one}`);
  if (all < 60) return `${all} s`;
  if (all < 3600) return two(Math.floor(all / 60), "min", all % 60, "s");
  if (all < 86400) return two(Math.floor(all / 3600), "h", Math.floor((all % 3600) / 60), "min");
  return two(Math.floor(all / 86400), "d", Math.floor((all % 86400) / 3600), "h");
}

const TIME_STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];

// Moments worth a label between two, in seconds, at most `most` of them.
function timeTicks(from, to, most) {
  const step = TIME_STEPS.find((candidate) => (to - from) / candidate <= most) ?? (to - from) / most;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return { step, ticks };
}

function tickLabel(seconds, step) {
  if (seconds === 0) return "0";
  if (step >= 86400 || seconds % 86400 === 0) return `${seconds / 86400} d`;
  const clock = moment(seconds % 86400);
  if (step >= 3600 && seconds < 86400) return `${Math.round(seconds / 3600)} h`;
  return step >= 60 ? clock.slice(0, 5) : clock;
}

// Round numbers from 0 to at least `to`.
function numberTicks(to, most) {
  if (!(to > 0)) return [0, 1];
  const rough = to / most;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * magnitude).find((candidate) => candidate >= rough * 0.999);
  const ticks = [];
  for (let count = 0; ; count++) {
    ticks.push(Number((count * step).toPrecision(12)));
    if (count * step >= to * 0.999) return ticks;
  }
}
