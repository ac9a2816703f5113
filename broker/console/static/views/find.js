// Find a key: its latest value, every version that is left. How a read finds an offset or a time.

import { get, path } from "../api.js";
import { choice, field, form, h, table, trouble } from "../dom.js";
import { count, size } from "../format.js";
import { content, headers, problems, when } from "./parts.js";

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
        ),
      ],
      "Find",
      (values) => answered(found, () => findKey(topic, values)),
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
      (values) => answered(walked, () => walk(topic, values)),
    ),
    walked,
  );
  return { node, every: 0 };
}

async function answered(place, ask) {
  try {
    place.replaceChildren(...(await ask()));
  } catch (error) {
    place.replaceChildren(trouble(error));
  }
}

async function findKey(topic, values) {
  const answer = await get(`${path("topics", topic.topic, "get")}?${new URLSearchParams(values)}`);
  const rows = answer.partitions.flatMap((one) => one.versions.map((version) => [one.partition, version]));
  const read = answer.partitions.reduce((total, one) => total + one.bytes_read, 0);
  const segments = answer.partitions.reduce((total, one) => total + one.segments, 0);
  const ruledOut = answer.partitions.reduce((total, one) => total + one.segments_ruled_out, 0);
  return [
    ...answer.partitions.flatMap((one) => problems(one.problems)),
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
    h(
      "p",
      { class: "quiet" },
      `Read ${size(read)}; of ${count(segments)} segments the key filters ruled out ${count(ruledOut)}.`,
    ),
  ];
}

async function walk(topic, values) {
  const answer = await get(path("topics", topic.topic, "partitions", values.partition, "seek"), {
    [values.by]: values.at,
  });
  return [
    h(
      "ol",
      {},
      answer.steps.map((words) => h("li", {}, words)),
    ),
  ];
}
