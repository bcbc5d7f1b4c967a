// The page's data, unpacked. src/data.rs and src/pack.rs wrote it; the numbers of ends are those of src/bars.rs.

const DATA = JSON.parse(document.getElementById("data").textContent);
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const VALUES = new Uint8Array(128);
for (let value = 0; value < 64; value++) VALUES[DIGITS.charCodeAt(value)] = value;

const ENDS = [
  "completed",
  "failed",
  "cancelled by its user",
  "preempted, queued again",
  "preempted, terminated (not resumable)",
  "its host failed",
  "still running when the run ended",
  "its max_runtime was reached",
];
const END_REQUEUED = 3;
const END_TERMINATED = 4;

class Unpacker {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  next() {
    let number = 0;
    for (let weight = 1; ; weight *= 32) {
      const value = VALUES[this.text.charCodeAt(this.at++)];
      number += (value & 31) * weight;
      if (value < 32) return number;
    }
  }

  nextSigned() {
    const number = this.next();
    return number % 2 === 1 ? -(number + 1) / 2 : number / 2;
  }
}

function differences(text, count) {
  const unpacker = new Unpacker(text);
  const numbers = new Float64Array(count);
  let sum = 0;
  for (let at = 0; at < count; at++) numbers[at] = sum += unpacker.nextSigned();
  return numbers;
}

const WORKLOADS = (() => {
  const count = DATA.names.length;
  const names = new Array(count);
  const leaf = new Uint32Array(count);
  const submitted = new Float64Array(count);
  const unpacker = new Unpacker(DATA.workloads);
  let before = "";
  for (let at = 0; at < count; at++) {
    const coded = DATA.names[at];
    names[at] = before = before.slice(0, VALUES[coded.charCodeAt(0)]) + coded.slice(1);
    leaf[at] = unpacker.next();
    submitted[at] = unpacker.next();
  }
  return { names, leaf, submitted };
})();

// The bars of a policy: columns, and per bar the pieces (a host, a run of its GPUs) where it is drawn.
function unpackBars(policy) {
  const count = policy.bar_count;
  const unpacker = new Unpacker(policy.bars);
  const bars = {
    count,
    start: new Float64Array(count),
    end: new Float64Array(count),
    protectedUntil: new Float64Array(count),
    workload: new Int32Array(count), // -1 where short attempts are added up
    attempt: new Uint32Array(count), // or how many of these started
    leaf: new Uint32Array(count),
    why: new Uint8Array(count),
    allocated: new Uint8Array(count),
    gpus: new Uint32Array(count),
    hosts: new Uint32Array(count),
    pieces: DATA.hosts.map(() => ({ bar: [], lane: [], lanes: [] })),
  };
  const lanes = DATA.hosts.map((host) => new Float64Array(host.gpus));
  let start = 0;
  for (let bar = 0; bar < count; bar++) {
    start += unpacker.next();
    bars.start[bar] = start;
    const workload = unpacker.next() - 1;
    bars.workload[bar] = workload;
    bars.leaf[bar] = workload < 0 ? unpacker.next() : WORKLOADS.leaf[workload];
    bars.attempt[bar] = unpacker.next();
    bars.end[bar] = start + unpacker.next();
    bars.protectedUntil[bar] = start + unpacker.next();
    const flags = unpacker.next();
    bars.why[bar] = flags >> 1;
    bars.allocated[bar] = flags & 1;
    let next = 0;
    for (let runs = unpacker.next(); runs > 0; runs--) {
      const first = next + unpacker.nextSigned();
      next = first + unpacker.next();
      const gpus = unpacker.next();
      bars.gpus[bar] += gpus * (next - first);
      bars.hosts[bar] += next - first;
      for (let host = first; host < next; host++) occupy(bars, lanes[host], host, bar, gpus);
    }
  }
  return bars;
}

// Which GPUs of a host a bar is drawn on: the first row of free ones that is long enough, or else the
// first free ones. The log says how many, not which.
function occupy(bars, free, host, bar, gpus) {
  const pieces = bars.pieces[host];
  const start = bars.start[bar];
  const end = bars.end[bar];
  const piece = (lane, lanes) => {
    pieces.bar.push(bar);
    pieces.lane.push(lane);
    pieces.lanes.push(lanes);
    free.fill(end, lane, lane + lanes);
  };
  let run = 0;
  for (let lane = 0; lane < free.length; lane++) {
    run = free[lane] <= start ? run + 1 : 0;
    if (run === gpus) return piece(lane - gpus + 1, gpus);
  }
  let left = gpus;
  for (let lane = 0; lane < free.length && left > 0; lane++) {
    if (free[lane] <= start) {
      piece(lane, 1);
      left--;
    }
  }
  // Means can overlap a little with what is drawn as it was.
  for (let lane = free.length - 1; lane >= 0 && left > 0; lane--, left--) piece(lane, 1);
  return undefined;
}

function unpackSamples(samples) {
  const line = (text) => differences(text, samples.count);
  const scaled = (texts, by) => texts.map((text) => line(text).map((number) => number / by));
  return {
    count: samples.count,
    at: line(samples.at),
    allocated: line(samples.allocated),
    unallocated: line(samples.unallocated),
    idle: line(samples.idle),
    fragmented: line(samples.fragmented),
    waiting: line(samples.waiting),
    charged: scaled(samples.charged, 3600), // GPU-hours
    allocation: scaled(samples.allocation, 3600),
    ratio: scaled(samples.ratio, 10000),
  };
}

// What a policy did; unpacked when it is first looked at.
const POLICIES = DATA.policies.map((policy) => {
  let bars;
  let samples;
  return {
    name: policy.name,
    measured: policy.measured,
    ended: policy.ended,
    joinedBelow: policy.joined_below,
    firstWaits: policy.first_waits,
    totalWaits: policy.total_waits,
    get bars() {
      return (bars ??= unpackBars(policy));
    },
    get samples() {
      return (samples ??= unpackSamples(policy.samples));
    },
  };
});

const SECOND = 1000 / DATA.unit_ms;
const LEAVES = DATA.budgets.flatMap((budget, at) => (budget.leaf ? [at] : []));
