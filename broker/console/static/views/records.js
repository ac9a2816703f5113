// The records of a partition: from an offset or a time on, the last ones, or as they come.

import { get, isRefused, path } from "../api.js";
import { answered, button, choice, field, form, go, h, table, trouble } from "../dom.js";
import { isMarking, unhidden } from "../use.js";
import { content, headers, problems, when } from "./parts.js";
import { count, digits } from "../format.js";

const ROWS = 100;
const TAIL_MS = 1000;
const TAIL_ROWS = 500;

export async function recordsTab(topic, query) {
  const asked = {
    partition: "0",
    from: "last",
    at: "",
    contains: "",
    hidden: "0",
    ...Object.fromEntries(query),
  };
  const place = h("div", {});
  const partitions = topic.partitions.map((one) => [one.partition, `partition ${one.partition}`]);
  const node = h(
    "div",
    {},
    form(
      [
        choice("partition", "of", partitions, asked.partition),
        choice(
          "from",
          "",
          [
            ["last", "the last ones"],
            ["offset", "from offset"],
            ["time", "from time (UTC)"],
            ["tail", "as they come"],
          ],
          asked.from,
          { "aria-label": "where to begin" },
        ),
        field("at", "", asked.at, {
          size: 24,
          placeholder: "offset, or 2026-11-26 12:00",
          "aria-label": "offset or time",
        }),
        field("contains", "that contain", asked.contains),
        choice(
          "hidden",
          "",
          [
            ["0", "as consumers see them"],
            ["1", "all: markers, aborted, undecided"],
          ],
          asked.hidden,
          { "aria-label": "which records" },
        ),
      ],
      "Show",
      (values) => {
        go(`#/topics/${encodeURIComponent(topic.topic)}/records?${new URLSearchParams(values)}`);
      },
    ),
    place,
  );
  const source = { topic: topic.topic, ...asked };
  if (asked.from === "tail") await tail(source, topic.topic_id, place);
  else await page(source, start(asked), place);
  return { node, every: 0 };
}

// Where the first page begins, as the broker is asked for it. A time may be one that the console shows.
function start(asked) {
  if (asked.from === "last") return {};
  if (asked.from === "offset") return { offset: digits(asked.at) || "0" };
  const at = asked.at.trim().replace(/\s*UTC$/, "Z");
  const ms = /^-?\d{11,}$/.test(digits(at))
    ? digits(at)
    : Date.parse(at.replace(" ", "T") + (/[zZ]|[+-]\d\d:?\d\d$/.test(at) ? "" : "Z"));
  return { time: Number.isNaN(ms) ? asked.at || "nothing" : ms };
}

function ask(source, from, limit, signal) {
  const { contains, hidden } = source;
  const wanted = { ...from, contains, hidden, limit };
  return get(path("topics", source.topic, "partitions", source.partition, "records"), wanted, signal);
}

function page(source, from, place) {
  return answered(place, (signal) => pageOf(source, from, place, signal));
}

async function pageOf(source, from, place, signal) {
  const answer = await ask(source, from, ROWS, signal);
  const isFirst = answer.start_offset <= answer.log_start_offset;
  const empty = !answer.is_at_end
    ? "None up to here; there is more behind it."
    : isFirst
      ? "No record is there."
      : "None from here on; there is more before it.";
  return [
    ...problems(answer.problems),
    listed(answer.records, empty),
    h(
      "p",
      { class: "quiet" },
      `Looked at: offsets ${count(answer.start_offset)} to ` +
        `${count(answer.next_offset)} of ${count(answer.high_watermark)}; the log begins at ` +
        `${count(answer.log_start_offset)}.`,
    ),
    h(
      "div",
      { class: "fields" },
      !isFirst && button("Before", () => page(source, { before: answer.start_offset }, place)),
      !answer.is_at_end && button("Next", () => page(source, { offset: answer.next_offset }, place)),
    ),
  ];
}

function listed(records, empty) {
  const headings = [["offset", "number"], "time", "key", "value", "headers", ""];
  return table(
    headings,
    records.map((one) => ({
      style: one.kind === "data" ? (one.is_tombstone ? "gone" : null) : one.kind,
      cells: [
        count(one.offset),
        when(one.timestamp),
        content(one, "key"),
        content(one, "value"),
        headers(one),
        one.kind === "marker" ? `marker: ${one.marker ?? "unknown"}` : one.kind === "data" ? "" : one.kind,
      ],
    })),
    { empty },
  );
}

// The youngest records, looked for again and again while the page shows them. Who marks a text or has the
// mouse down sees them afterwards. Where more have come than are shown, or the topic was made again, what is
// youngest then takes the place of all.
async function tail(source, topicId, place) {
  const said = h("div", {});
  const list = h("div", {});
  place.replaceChildren(said, list);
  let next = null;
  let kept = [];
  let isDrawn = false;
  const look = async () => {
    let wait = TAIL_MS;
    try {
      const answer = await ask(source, next === null ? {} : { offset: next }, TAIL_ROWS);
      const isAnother = answer.topic_id !== topicId || answer.high_watermark < (next ?? 0);
      const isBehind = !answer.is_at_end;
      if (isAnother || next === null) kept = [];
      if (!isAnother) kept = [...kept, ...answer.records].slice(-TAIL_ROWS);
      if (isAnother || next === null || answer.records.length) isDrawn = false;
      if (isAnother || isBehind) wait = 0;
      next = isAnother || (isBehind && !source.contains) ? null : answer.next_offset;
      topicId = answer.topic_id;
      said.replaceChildren(...problems(answer.problems));
    } catch (error) {
      if (error.name === "AbortError") return; // the view was left
      if (isRefused(error)) wait = null; // to ask again would be to be asked again
      if (said.textContent !== error.message) said.replaceChildren(trouble(error));
    }
    if (!isDrawn && !isMarking(list)) {
      list.replaceChildren(listed(kept.toReversed(), "Nothing has come yet."));
      isDrawn = true;
    }
    if (wait !== null) setTimeout(further, wait);
  };
  const further = () => place.isConnected && (document.hidden ? unhidden(further) : look());
  await look();
}
