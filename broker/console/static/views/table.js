// The topic as a table: the latest value of each key, a page of keys at a time.

import { get, path } from "../api.js";
import { answered, button, choice, field, form, go, h, table } from "../dom.js";
import { content, headers, problems, when } from "./parts.js";
import { count, digits } from "../format.js";

const ROWS = 100;

export async function tableTab(topic, query) {
  const asked = Object.fromEntries(query);
  const place = h("div", {});
  const all = [
    ["", "all partitions"],
    ...topic.partitions.map((one) => [one.partition, `partition ${one.partition}`]),
  ];
  const node = h(
    "div",
    {},
    form(
      [
        field("prefix", "keys that begin with", asked.prefix ?? ""),
        choice("partition", "of", all, asked.partition ?? ""),
        field("offset", "as of offset", asked.offset ?? "", {
          size: 12,
          inputmode: "numeric",
          placeholder: "now",
        }),
        choice(
          "tombstones",
          "deleted keys",
          [
            ["0", "hidden"],
            ["1", "shown"],
          ],
          asked.tombstones ?? "0",
        ),
      ],
      "Show",
      (values) => {
        go(`#/topics/${encodeURIComponent(topic.topic)}/table?${new URLSearchParams(values)}`);
      },
    ),
    place,
  );
  await page(topic, asked, null, place);
  return { node, every: 0 };
}

// Shows a page, and what is needed to go on behind it.
function page(topic, asked, after, place) {
  return answered(place, (signal) => pageOf(topic, asked, after, place, signal));
}

async function pageOf(topic, asked, after, place, signal) {
  const wanted = { ...asked, offset: digits(asked.offset ?? ""), after, limit: ROWS };
  const answer = await get(path("topics", topic.topic, "table"), wanted, signal);
  const behind = answer.next_after_base64;
  return [
    ...problems(answer.problems),
    table(
      ["key", "value", "headers", ["partition", "number"], ["offset", "number"], "time"],
      answer.rows.map(row),
      {
        empty: behind === null ? "No key is there." : "All keys of this page are deleted.",
      },
    ),
    h(
      "div",
      { class: "fields" },
      after !== null && button("First keys", () => page(topic, asked, null, place)),
      behind !== null && button("Next keys", () => page(topic, asked, behind, place)),
    ),
  ];
}

function row(one) {
  return {
    style: one.is_tombstone ? "gone" : null,
    cells: [
      content(one, "key"),
      one.is_tombstone ? "deleted" : content(one, "value"),
      headers(one),
      one.partition,
      count(one.offset),
      when(one.timestamp),
    ],
  };
}
