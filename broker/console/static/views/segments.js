// The segments of a topic: one bar each, to scale, with the offsets that matter; then what each holds.

import { get, path } from "../api.js";
import { button, h, svg, table, trouble } from "../dom.js";
import { count, percent, readable, size, time } from "../format.js";
import { NAMELESS, when } from "./parts.js";

const STATES = {
  clean: "clean: the cleaner has been here",
  dirty: "dirty: to be cleaned",
  lagging: "younger than min.compaction.lag.ms",
  unstable: "behind an open transaction, or not on disk yet",
  closed: "closed (the topic is not compacted)",
  active: "active: still written",
};
const WIDTH = 1000;
const HEIGHT = 26;
const LINE = 15;
const LETTER = 6.5;
const NARROWEST = 2;
const AT_ONCE = 8;

export async function segmentsTab(topic, _, again) {
  const shown = topic.partitions.slice(0, AT_ONCE);
  const place = h("div", {}, await Promise.all(shown.map((one) => partition(topic, one))));
  const rest = topic.partitions.slice(AT_ONCE);
  const more =
    rest.length &&
    button(`The other ${count(rest.length)} partitions`, async () => {
      more.disabled = true;
      try {
        for (; rest.length && place.isConnected; rest.shift()) place.append(await partition(topic, rest[0]));
        more.remove();
      } catch (error) {
        more.disabled = false; // to go on from there
        more.replaceChildren(`The other ${count(rest.length)} partitions`);
        more.before(trouble(error));
      }
    });
  const node = h("div", {}, legend(), button("Look again", again), place, more || null);
  return { node, every: 0 };
}

function legend() {
  return h(
    "ul",
    { class: "legend" },
    Object.entries(STATES).map(([state, words]) =>
      h("li", {}, h("span", { class: `swatch ${state}` }), words),
    ),
  );
}

async function partition(topic, log) {
  const answer = await get(path("topics", topic.topic, "segments"), { partition: log.partition });
  const [found] = answer.partitions;
  if (!found || found.error) {
    const words = found ? found.error : "it is not served";
    return h(
      "article",
      { class: "partition bad" },
      h("h3", {}, `Partition ${log.partition}`),
      h("p", {}, words),
    );
  }
  const marks = [
    ["log start", log.log_start_offset],
    ["first dirty", found.first_dirty_offset],
    ["last stable", log.last_stable_offset],
    ["end", log.log_end_offset],
    ...topic.groups
      .filter((one) => one.partition === log.partition)
      .map((one) => [readable(one.group) || NAMELESS, one.offset, true]),
  ];
  return h(
    "article",
    { class: "partition" },
    h("h3", {}, `Partition ${log.partition}`),
    h("div", { class: "wide" }, strip(found.segments, marks)),
    tombstones(found.segments),
    segmentTable(found.segments),
  );
}

// The bars, and above them where the offsets lie.
function strip(segments, marks) {
  const bars = laid(segments);
  const placed = named(marks, bars);
  const top = LINE * (1 + Math.max(...placed.map((one) => one.level))) + 4;
  return svg(
    "svg",
    { class: "strip", viewBox: `0 0 ${WIDTH} ${top + HEIGHT + 4}`, role: "img" },
    svg("title", {}, `${segments.length} segments, ${size(sum(segments, "size_bytes"))}`),
    bars.map((one) =>
      svg(
        "rect",
        {
          class: one.segment.state,
          x: one.x,
          y: top,
          width: Math.max(one.width / 2, one.width - 1),
          height: HEIGHT,
        },
        svg(
          "title",
          {},
          `${one.segment.file}: ${one.segment.state}, ${size(one.segment.size_bytes)}, ` +
            `${count(one.segment.records)} records`,
        ),
      ),
    ),
    placed.map(({ name, offset, isGroup, x, level, isLate }) =>
      svg(
        "g",
        { class: isGroup ? "mark group" : "mark" },
        svg("line", { x1: x, x2: x, y1: LINE * level + 3, y2: top + HEIGHT + 3 }),
        svg(
          "text",
          { x: isLate ? x - 3 : x + 3, y: LINE * level + 12, "text-anchor": isLate ? "end" : "start" },
          name,
        ),
        svg("title", {}, `${name}: ${count(offset)}`),
      ),
    ),
  );
}

// Each mark with its place and a line of its own where its name would run into another one.
function named(marks, bars) {
  const taken = [];
  return marks
    .toSorted((a, b) => a[1] - b[1])
    .map(([name, offset, isGroup = false]) => {
      const x = positionOf(offset, bars);
      const room = LETTER * name.length + 8;
      const isLate = x + room > WIDTH;
      const [from, to] = isLate ? [x - room, x] : [x, x + room];
      let level = 0;
      while (taken.some((one) => one.level === level && one.from < to && from < one.to)) level += 1;
      taken.push({ level, from, to });
      return { name, offset, isGroup, x, level, isLate };
    });
}

// Where each segment's bar lies: its bytes to scale, but wide enough to be seen.
function laid(segments) {
  const sizes = segments.map((one) => one.size_bytes);
  const total = sum(segments, "size_bytes") || 1;
  const narrowest = Math.min(NARROWEST, WIDTH / segments.length);
  const room = Math.max(0, WIDTH - narrowest * segments.length);
  let x = 0;
  return segments.map((segment, at) => {
    const width = narrowest + room * (total === 1 ? 1 / segments.length : sizes[at] / total);
    const bar = { segment, x, width };
    x += width;
    return bar;
  });
}

function positionOf(offset, bars) {
  const bar = bars.findLast((one) => one.segment.base_offset <= offset) ?? bars[0];
  const span = bar.segment.end_offset - bar.segment.base_offset;
  const part = span > 0 ? Math.min(1, Math.max(0, (offset - bar.segment.base_offset) / span)) : 0;
  return bar.x + part * (bar.width - 1);
}

function tombstones(segments) {
  const all = segments.map((one) => one.tombstones).filter(Boolean);
  const many = (name) => sum(all, name);
  const empty = sum(segments, "empty_values");
  if (!many("fresh") && !many("armed") && !many("expired") && !empty) return null;
  const last = Math.max(...all.map((one) => one.armed_until_ms ?? -1));
  const until = last >= 0 ? ` (until ${time(last)})` : "";
  return h(
    "p",
    {},
    `Tombstones: ${count(many("fresh"))} fresh, ${count(many("armed"))} armed${until}, ` +
      `${count(many("expired"))} expired.`,
    empty > 0 && ` ${count(empty)} records have an empty value: that is no tombstone, null is.`,
  );
}

function segmentTable(segments) {
  const headings = [
    "file",
    "state",
    ["offsets", "number"],
    ["size", "number"],
    ["records", "number"],
    ["live keys ≈", "number"],
    ["garbage ≈", "number"],
    ["holes", "number"],
    ["tombstones", "number"],
    "first time",
    "last time",
  ];
  return table(
    headings,
    segments.map((one) =>
      one.problem
        ? {
            style: "bad",
            cells: [
              one.file,
              one.state,
              count(one.base_offset),
              size(one.size_bytes),
              one.problem,
              ...Array(6).fill(""),
            ],
          }
        : [
            one.file,
            one.state,
            `${count(one.base_offset)} to ${count(one.end_offset)}`,
            size(one.size_bytes),
            count(one.records),
            count(one.live_keys),
            one.keyed_records ? percent(one.keyed_records - one.live_keys, one.keyed_records) : "–",
            count(one.holes),
            count(one.tombstones ? one.tombstones.fresh + one.tombstones.armed + one.tombstones.expired : 0),
            when(one.min_timestamp),
            when(one.max_timestamp),
          ],
    ),
  );
}

function sum(rows, name) {
  return rows.reduce((total, one) => total + one[name], 0);
}
