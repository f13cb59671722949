// Charts out of what the portal answers: which lines belong together, what they are called, what stands above them, and which spans tell of trouble.
import { say } from "../words.js";

/** Below this, waiting is nothing to look at. */
const SOME_WAITING = 0.01;
/** Charts of what programs report. */
const MOST_REPORTS = 24;
/** Processes of a chart, those that used most: as many as there are colours. */
const MOST_PROCESSES = 8;

const whole = (line) => line.device === undefined;
const beyond = (line) => line.device !== "lo";
const any = () => true;

const ofNode = () => say("chart_of_node");
const ofMost = () => say("chart_of_most", { n: MOST_PROCESSES });

/** What of the nodes' memory is in use: what could not be had any more. */
function nodeMemory(all) {
  const free = new Map(all.filter((line) => line.metric === "node_memory_available_bytes").map((line) => [line.node, line.values]));
  const used = ({ node, values }) => values.map((value, at) => (value === null || free.get(node)[at] == null ? null : Math.max(0, value - free.get(node)[at])));
  const known = all.filter((line) => line.metric === "node_memory_bytes" && free.has(line.node));
  return known.map((line) => ({ ...line, values: used(line) })).filter((line) => line.values.some((value) => value !== null));
}

const SPECS = [
  { id: "cpu", group: "cpu", metric: "cpu_seconds", kind: "cores", limit: (all, cpus) => cpus, title: () => say("chart_cpu") },
  { id: "cpu-wait", group: "cpu", metric: "pressure_cpu_seconds", kind: "share", least: SOME_WAITING, title: () => say("chart_cpu_wait") },
  { id: "cpu-wait-node", group: "cpu", metric: "node_pressure_cpu_seconds", kind: "share", least: SOME_WAITING, remark: ofNode, title: () => say("chart_cpu_wait_node") },
  { id: "ranks", group: "cpu", metric: "step_ranks", kind: "number", least: 1, title: () => say("chart_ranks") },
  { id: "cores", group: "cores", metric: "cpu_core", kind: "share", limit: () => 1, title: () => say("chart_cores") },
  { id: "cores-node", group: "cores", metric: "node_cpu_core", kind: "share", limit: () => 1, remark: ofNode, title: () => say("chart_cores_node") },
  { id: "memory", group: "memory", metric: "memory_bytes", kind: "bytes", limit: (all) => greatest(all, "memory_limit_bytes"), title: () => say("chart_memory") },
  { id: "memory-wait", group: "memory", metric: "pressure_memory_seconds", kind: "share", least: SOME_WAITING, title: () => say("chart_memory_wait") },
  { id: "memory-peak", group: "memory", metric: "memory_peak_bytes", kind: "bytes", limit: (all) => greatest(all, "memory_limit_bytes"), title: () => say("chart_memory_peak") },
  { id: "memory-node", group: "memory", made: nodeMemory, kind: "bytes", limit: (all) => greatest(all, "node_memory_bytes"), remark: ofNode, title: () => say("chart_memory_node") },
  { id: "memory-wait-node", group: "memory", metric: "node_pressure_memory_seconds", kind: "share", least: SOME_WAITING, remark: ofNode, title: () => say("chart_memory_wait_node") },
  { id: "gpu", group: "gpu", metric: "gpu_util", kind: "share", limit: () => 1, title: () => say("chart_gpu") },
  { id: "gpu-memory", group: "gpu", metric: "gpu_memory_bytes", kind: "bytes", limit: (all) => greatest(all, "gpu_memory_limit_bytes"), title: () => say("chart_gpu_memory") },
  { id: "gpu-memory-busy", group: "gpu", metric: "gpu_memory_util", kind: "share", limit: () => 1, title: () => say("chart_gpu_memory_busy") },
  { id: "gpu-power", group: "gpu", metric: "gpu_power_watts", kind: "watts", limit: (all) => greatest(all, "gpu_power_limit_watts"), title: () => say("chart_gpu_power") },
  { id: "gpu-heat", group: "gpu", metric: "gpu_temperature_celsius", kind: "celsius", title: () => say("chart_gpu_heat") },
  { id: "gpu-processes", group: "gpu", metric: "gpu_processes", kind: "number", title: () => say("chart_gpu_processes") },
  { id: "gpu-corrected", group: "gpu", metric: "gpu_ecc_corrected", kind: "number", counted: true, least: Number.MIN_VALUE, title: () => say("chart_gpu_corrected") },
  { id: "gpu-uncorrected", group: "gpu", metric: "gpu_ecc_uncorrected", kind: "number", counted: true, least: Number.MIN_VALUE, title: () => say("chart_gpu_uncorrected") },
  { id: "read", group: "io", metric: "io_read_bytes", kind: "rate", title: () => say("chart_read") },
  { id: "written", group: "io", metric: "io_written_bytes", kind: "rate", title: () => say("chart_written") },
  { id: "io-wait", group: "io", metric: "pressure_io_seconds", kind: "share", least: SOME_WAITING, title: () => say("chart_io_wait") },
  { id: "io-wait-node", group: "io", metric: "node_pressure_io_seconds", kind: "share", least: SOME_WAITING, remark: ofNode, title: () => say("chart_io_wait_node") },
  { id: "mount-read", group: "io", metric: "mount_read_bytes", kind: "rate", remark: ofNode, title: () => say("chart_mount_read") },
  { id: "mount-written", group: "io", metric: "mount_written_bytes", kind: "rate", remark: ofNode, title: () => say("chart_mount_written") },
  { id: "received", group: "network", metric: "net_receive_bytes", kind: "rate", wanted: beyond, remark: ofNode, title: () => say("chart_received") },
  { id: "sent", group: "network", metric: "net_transmit_bytes", kind: "rate", wanted: beyond, remark: ofNode, title: () => say("chart_sent") },
  { id: "process-cpu", group: "processes", metric: "cpu_process", kind: "cores", most: MOST_PROCESSES, remark: ofMost, title: () => say("chart_process_cpu") },
  { id: "process-memory", group: "processes", metric: "memory_process_bytes", kind: "bytes", most: MOST_PROCESSES, remark: ofMost, title: () => say("chart_process_memory") },
  { id: "process-gpu", group: "processes", metric: "gpu_util_process", kind: "share", most: MOST_PROCESSES, remark: ofMost, title: () => say("chart_process_gpu") },
  { id: "process-gpu-memory", group: "processes", metric: "gpu_memory_process_bytes", kind: "bytes", most: MOST_PROCESSES, remark: ofMost, title: () => say("chart_process_gpu_memory") },
];

/** Groups in the order in which they are looked at. */
export const GROUPS = ["cpu", "cores", "memory", "gpu", "io", "network", "processes", "report"];
/** Those of them that are fetched only where somebody asks for them: they are many lines. */
export const MORE = ["cores", "processes"];

/** What stands above the charts of a group. */
export function groupTitle(group) {
  if (group === "cpu") return say("chart_group_cpu");
  if (group === "cores") return say("chart_group_cores");
  if (group === "processes") return say("chart_group_processes");
  if (group === "memory") return say("chart_group_memory");
  if (group === "gpu") return say("chart_group_gpu");
  if (group === "io") return say("chart_group_io");
  return group === "network" ? say("chart_group_network") : say("chart_group_report");
}

const natural = new Intl.Collator(undefined, { numeric: true }).compare;
const byPlace = (a, b) => natural(a.node, b.node) || natural(a.device ?? "", b.device ?? "");

/** The greatest of all values; less than all numbers where there is none. Arrays can be too long for an argument each. */
export function highest(lists) {
  let most = -Infinity;
  for (const list of lists) for (const value of list) if (value !== null && value > most) most = value;
  return most;
}

function greatest(all, metric) {
  const found = all.filter((line) => line.metric === metric).map((line) => line.highest ?? highest([line.values]));
  return found.length > 0 ? highest([found]) : undefined;
}

/** What the device of a line is called. */
function called(line) {
  if (whole(line) || line.group === "report") return undefined;
  if (line.group === "gpu") return say("chart_gpu_name", { gpu: line.device });
  if (line.group === "cores") return say("chart_core_name", { core: line.device });
  if (line.group !== "processes") return line.device;
  const [id, ...name] = line.device.split(":");
  return say("chart_process_name", { name: name.join(":"), id });
}

/** What a line is called: its node where there are several or nothing else to say, and its device. */
function label(line, several) {
  const device = called(line);
  if (device === undefined) return line.node;
  return several ? say("chart_place", { node: line.node, device }) : device;
}

function line(one, several) {
  const key = [one.metric, one.node, one.device ?? ""].join("|");
  return { key, label: label(one, several), node: one.node, device: one.device, values: one.values };
}

/** Those `most` lines that used most, in their own order: which of them is first would change all the time. */
function greatestOf(lines, most) {
  const used = new Map(lines.map((one) => [one, highest([one.values])]));
  return [...lines].sort((a, b) => used.get(b) - used.get(a)).slice(0, most).sort(byPlace);
}

/** The charts of an answer that have something to show, in the order in which they are looked at. */
export function charts(answer, cpus) {
  const all = answer.lines;
  const several = new Set(all.map((one) => one.node)).size > 1;
  const found = [];
  for (const spec of SPECS) {
    let lines = (spec.made?.(all) ?? all.filter((one) => one.metric === spec.metric && (spec.wanted ?? any)(one))).sort(byPlace);
    if (spec.most) lines = greatestOf(lines, spec.most);
    // What comes as a rise per second is shown as how many in a span where it is pieces.
    if (spec.counted) lines = lines.map((one) => ({ ...one, values: one.values.map((value) => (value === null ? null : Math.round(value * answer.step_s))) }));
    if (lines.length === 0 || (spec.least !== undefined && highest(lines.map((one) => one.values)) < spec.least)) continue;
    const { id, group, kind } = spec;
    found.push({ id, group, kind, title: spec.title(), remark: spec.remark?.() ?? "", limit: spec.limit?.(all, cpus), lines: lines.map((one) => line(one, several)) });
  }
  const names = [...new Set(all.filter((one) => one.group === "report").map((one) => one.device ?? ""))].sort(natural);
  for (const name of names.slice(0, MOST_REPORTS)) {
    const lines = all.filter((one) => one.group === "report" && (one.device ?? "") === name).sort(byPlace);
    found.push({ id: `report-${name}`, group: "report", kind: "number", title: name, remark: "", limit: undefined, lines: lines.map((one) => line(one, several)) });
  }
  return found;
}

/** Spans of which the figures themselves say that something was wrong: at most `most`, what is bad and what is late first, each `{at, text, tone}`. */
export function troubles(answer, most) {
  const begins = Date.parse(answer.from);
  const counts = new Map();
  const note = (kind, at, line) => {
    const key = `${kind} ${at}`;
    const known = counts.get(key) ?? { kind, at, lines: [] };
    known.lines.push(line);
    counts.set(key, known);
  };
  for (const one of answer.lines) {
    for (const [at, value] of one.values.entries()) {
      if (value === null) continue;
      // One span of which nothing is known is no news: what it was before it goes on.
      const before = one.values[at - 1] ?? one.values[at - 2] ?? null;
      if (one.metric === "oom_kills" && value > 0) note("oom", at, one);
      if (one.metric === "gpu_up" && value < 1 && (before === null || before >= 1)) note("lost", at, one);
      if (one.metric === "gpu_ecc_uncorrected" && value > 0) note("error", at, one);
      if (one.metric === "gpu_throttled" && value > 0 && !(before > 0)) note("slow", at, one);
    }
  }
  const text = ({ kind, lines }) => {
    const where = lines.length === 1 ? label(lines[0], true) : lines.length;
    if (kind === "oom") return say("mark_oom", { where });
    if (kind === "error") return say("mark_gpu_error", { where });
    return kind === "lost" ? say("mark_gpu_lost", { where }) : say("mark_gpu_slow", { where });
  };
  const tone = ({ kind }) => (kind === "slow" ? "wait" : "bad");
  const worst = (a, b) => (tone(b) === "bad") - (tone(a) === "bad") || b.at - a.at;
  const found = [...counts.values()].sort(worst).slice(0, most);
  found.sort((a, b) => a.at - b.at);
  return found.map((one) => ({ at: begins + (one.at + 0.5) * answer.step_s * 1000, text: text(one), tone: tone(one) }));
}

/** Spans in which steps began: at most `most`, the last ones, each `{at, text, tone}`. */
export function steps(answer, most) {
  const begins = Date.parse(answer.from);
  const begun = answer.lines.find((one) => one.metric === "steps")?.values ?? [];
  const found = begun.flatMap((value, at) => (value > 0 ? [at] : []));
  return found.slice(-most).map((at) => ({ at: begins + (at + 0.5) * answer.step_s * 1000, text: say("mark_step"), tone: "" }));
}

/** `old` with the spans of `fresh` put behind; null where both do not have the same spans. What lies before `from` is dropped. */
export function append(old, fresh, from) {
  const step = old.step_s * 1000;
  const offset = (Date.parse(fresh.from) - Date.parse(old.from)) / step;
  if (old.step_s !== fresh.step_s || !Number.isInteger(offset) || offset < 0 || offset > old.spans) return null;
  const drop = Math.min(offset, Math.max(0, Math.floor((from - Date.parse(old.from)) / step)));
  const spans = Math.max(old.spans, offset + fresh.spans);
  const key = (one) => JSON.stringify([one.metric, one.node, one.device]);
  const lines = new Map(old.lines.map((one) => [key(one), { ...one, values: [...one.values, ...Array(spans - old.spans).fill(null)] }]));
  for (const one of fresh.lines) {
    const known = lines.get(key(one)) ?? { ...one, values: Array(spans).fill(null) };
    for (const [at, value] of one.values.entries()) if (value !== null) known.values[offset + at] = value;
    if (one.highest !== undefined) known.highest = Math.max(known.highest ?? one.highest, one.highest);
    lines.set(key(one), known);
  }
  const kept = [...lines.values()].map((one) => ({ ...one, values: one.values.slice(drop) }));
  return { ...old, from: new Date(Date.parse(old.from) + drop * step).toISOString(), spans: spans - drop, lines: kept.filter((one) => one.values.some((value) => value !== null)) };
}

/** An answer with the lines of others of the same time, which may have other spans. */
export function joined(answer, others) {
  const same = (other) => other.step_s === answer.step_s && other.spans === answer.spans && Date.parse(other.from) === Date.parse(answer.from);
  const fitting = (other) => (same(other) ? other.lines : other.lines.map((one) => ({ ...one, values: aligned(one, answer, other, 0) })));
  return { ...answer, unreadable: others.reduce((sum, other) => sum + other.unreadable, answer.unreadable), lines: [...answer.lines, ...others.flatMap(fitting)] };
}

/** The values of `line` for the spans of another answer, whose times lie `later` milliseconds after this one's. */
export function aligned(line, own, other, later) {
  const [begins, step] = [Date.parse(other.from) + later, other.step_s * 1000];
  const first = Date.parse(own.from);
  return Array.from({ length: own.spans }, (_, at) => {
    const middle = first + (at + 0.5) * own.step_s * 1000;
    return line.values[Math.floor((middle - begins) / step)] ?? null;
  });
}
