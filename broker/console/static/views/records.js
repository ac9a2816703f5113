// The records of a partition: from an offset or a time on, the last ones, or as they come.

import { get, path } from "../api.js";
import { button, choice, field, form, go, h, table, trouble } from "../dom.js";
import { content, headers, problems, when } from "./parts.js";
import { count } from "../format.js";

const ROWS = 100;
const TAIL_MS = 1000;
const TAIL_ROWS = 1000;
const KEPT = 500;

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
  if (asked.from === "tail") await tail(source, place);
  else await page(source, start(asked), place);
  return { node, every: 0 };
}

// Where the first page begins, as the broker is asked for it.
function start(asked) {
  if (asked.from === "last") return {};
  if (asked.from === "offset") return { offset: asked.at || "0" };
  const ms = Date.parse(
    asked.at.trim().replace(" ", "T") + (/[zZ]|[+-]\d\d:?\d\d$/.test(asked.at) ? "" : "Z"),
  );
  return { time: /^\d{11,}$/.test(asked.at.trim()) ? asked.at.trim() : Number.isNaN(ms) ? asked.at : ms };
}

function ask(source, from, limit = ROWS) {
  const { contains, hidden } = source;
  return get(path("topics", source.topic, "partitions", source.partition, "records"), {
    ...from,
    contains,
    hidden,
    limit,
  });
}

async function page(source, from, place) {
  let answer;
  try {
    answer = await ask(source, from);
  } catch (error) {
    place.replaceChildren(trouble(error));
    return;
  }
  const empty = answer.is_at_end ? "No record is there." : "None up to here; there is more behind it.";
  place.replaceChildren(
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
      answer.start_offset > answer.log_start_offset &&
        button("Before", () => page(source, { before: answer.start_offset }, place)),
      !answer.is_at_end && button("Next", () => page(source, { offset: answer.next_offset }, place)),
    ),
  );
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

// The youngest records, looked for again and again while the page shows them; at once where there are more.
async function tail(source, place) {
  let next = null;
  let kept = [];
  const look = async () => {
    let isBehind = false;
    try {
      const answer = await ask(source, next === null ? {} : { offset: next }, TAIL_ROWS);
      isBehind = !answer.is_at_end;
      next = answer.next_offset;
      kept = [...kept, ...answer.records].slice(-KEPT);
      if (answer.records.length || !place.hasChildNodes()) {
        place.replaceChildren(
          ...problems(answer.problems),
          listed(kept.toReversed(), "Nothing has come yet."),
        );
      }
    } catch (error) {
      place.replaceChildren(trouble(error));
    }
    setTimeout(() => place.isConnected && look(), isBehind ? 0 : TAIL_MS);
  };
  await look();
}
