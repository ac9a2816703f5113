// Find a key: its latest value, every version that is left; erase it. How a read finds an offset or a time.

import { get, path, post } from "../api.js";
import { answered, button, choice, field, form, h, sure, table } from "../dom.js";
import { count, digits, readable, size, time } from "../format.js";
import { content, headers, problems, when } from "./parts.js";

const SHOWN_OFFSETS = 5;

export async function findTab(topic) {
  const found = h("div", {});
  const walked = h("div", {});
  const partitions = topic.partitions.map((one) => [one.partition, `partition ${one.partition}`]);
  const node = h(
    "div",
    {},
    h("h2", {}, "A key"),
    form(
      [
        field("key", "key"),
        choice(
          "encoding",
          "written",
          [
            ["text", "as text"],
            ["hex", "in hex"],
            ["base64", "in base64"],
          ],
          "text",
        ),
        choice(
          "history",
          "",
          [
            ["0", "its latest value"],
            ["1", "every version that is left"],
          ],
          "0",
          { "aria-label": "how many versions" },
        ),
      ],
      "Find",
      (values) => answered(found, (signal) => findKey(topic, values, signal)),
    ),
    found,
    h("h2", {}, "How a read finds its place"),
    form(
      [
        choice("partition", "of", partitions, "0"),
        choice(
          "by",
          "by",
          [
            ["offset", "offset"],
            ["time", "time in ms"],
          ],
          "offset",
        ),
        field("at", "", "", { inputmode: "numeric", "aria-label": "offset or time" }),
      ],
      "Explain",
      (values) => answered(walked, (signal) => walk(topic, values, signal)),
    ),
    walked,
  );
  return { node, every: 0 };
}

async function findKey(topic, values, signal) {
  const asked = `${path("topics", topic.topic, "get")}?${new URLSearchParams({ ...values, shortened: 1 })}`;
  const answer = await get(asked, {}, signal);
  const rows = answer.partitions.flatMap((one) => one.versions.map((version) => [one.partition, version]));
  const read = answer.partitions.reduce((total, one) => total + one.bytes_read, 0);
  const segments = answer.partitions.reduce((total, one) => total + one.segments, 0);
  const ruledOut = answer.partitions.reduce((total, one) => total + one.segments_ruled_out, 0);
  const shown = [
    ...answer.partitions.flatMap((one) => problems(one.problems)),
    answer.partitions.some((one) => one.is_cut) &&
      h("p", { class: "quiet" }, "There are more versions: only the newest are shown."),
    table(
      [["partition", "number"], ["offset", "number"], "time", "value", "headers"],
      rows.map(([partition, one]) => ({
        style: one.is_tombstone ? "gone" : null,
        cells: [
          partition,
          count(one.offset),
          when(one.timestamp),
          one.is_tombstone ? "deleted" : content(one, "value"),
          headers(one),
        ],
      })),
      { empty: "No record has this key." },
    ),
    rows.length > 0 && topic.is_compacted && erasing(topic, values),
    h(
      "p",
      { class: "quiet" },
      `Read ${size(read)}; of ${count(segments)} segments the key filters ruled out ${count(ruledOut)}.`,
    ),
  ];
  return shown.filter(Boolean);
}

function erasing(topic, { key, encoding }) {
  const said = h("div", { class: "said" });
  const name = encoding === "text" ? readable(key) || "the empty key" : `${encoding} ${key}`;
  const words =
    `Erase ${name} from ${topic.topic}? A tombstone is written, and all is compacted until no file holds a ` +
    "value of the key. That cannot be undone.";
  const erase = button(
    "Erase",
    async () => {
      if (!(await sure(words, "Erase it"))) return;
      said.replaceChildren("At work…");
      await answered(said, async () => {
        const answer = await post(path("topics", topic.topic, "erase"), { key, encoding });
        return answer.partitions.flatMap(receipt);
      });
    },
    "danger",
  );
  return h("div", {}, h("div", { class: "fields" }, erase), said);
}

// What was found in the files of a partition afterwards.
function receipt(one) {
  const place = `Partition ${one.partition}`;
  if (one.error) return [h("p", { class: "trouble" }, `${place}: ${one.error}`)];
  const more = one.is_cut ? "more than " : "";
  const told = one.is_erased
    ? h("p", {}, `${place}: no file holds a value of the key; there were ${more}${count(one.values)}.`)
    : h(
        "p",
        { class: "trouble" },
        `${place}: not erased. ${one.sentence ?? `${one.held_back_by}.`}`,
      );
  const until = one.tombstone_until_ms === null ? "" : ` from ${time(one.tombstone_until_ms)} on`;
  const rest = [`Files that were replaced are removed at ${time(one.files_until_ms)}.`];
  if (one.has_tombstone)
    rest.push(`Its tombstone, offset ${one.tombstone_offset}: a cleaning${until} removes it.`);
  if (one.values_left.length) rest.unshift(`Values at offsets ${some(one.values_left)} are left.`);
  if (one.written_since.length) rest.push(`It was written again at offsets ${some(one.written_since)}.`);
  return [told, h("p", { class: "quiet" }, rest.join(" "))];
}

// The first of them, and how many there are.
function some(offsets) {
  const told = offsets.slice(0, SHOWN_OFFSETS).map(count).join(", ");
  return offsets.length <= SHOWN_OFFSETS ? told : `${told} … (${count(offsets.length)} of them)`;
}

async function walk(topic, values, signal) {
  const asked = path("topics", topic.topic, "partitions", values.partition, "seek");
  const answer = await get(asked, { [values.by]: digits(values.at) }, signal);
  return [
    h(
      "ol",
      {},
      [...(answer.time_steps ?? []), ...answer.steps].map((words) => h("li", {}, words)),
    ),
    ...answer.notes.map((words) => h("p", { class: "quiet" }, words)),
  ];
}
