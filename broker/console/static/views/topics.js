// Every topic in one line: what it is, how much it holds, how far compaction is.

import { get, path } from "../api.js";
import { checkbox, h, table } from "../dom.js";
import { ago, count, ratio, size, time } from "../format.js";
import { badge } from "./parts.js";

const shown = { text: "", internal: false };

export async function topicsView() {
  const answer = await get(path("topics"));
  const place = h("div", {});
  const draw = () => place.replaceChildren(listed(answer));
  const search = h("input", {
    type: "search",
    placeholder: "Find a topic",
    "aria-label": "Find a topic",
    value: shown.text,
    oninput: () => {
      shown.text = search.value;
      draw();
    },
  });
  draw();
  const node = h(
    "section",
    {},
    h("h1", {}, "Topics"),
    h(
      "div",
      { class: "fields" },
      search,
      checkbox("the broker's own, too", shown.internal, (value) => {
        shown.internal = value;
        draw();
      }),
    ),
    place,
  );
  return { node, every: 3 };
}

function listed(answer) {
  const wanted = answer.topics.filter(
    (one) =>
      (shown.internal || !one.is_internal) && one.topic.toLowerCase().includes(shown.text.toLowerCase()),
  );
  const headings = [
    "topic",
    "policy",
    ["partitions", "number"],
    ["offsets", "number"],
    ["size", "number"],
    ["dirty ratio", "number"],
    ["cleanable", "number"],
    "last record",
    "compaction",
  ];
  return table(
    headings,
    wanted.map((one) => row(one, answer.now_ms)),
    {
      empty: shown.text ? "No topic is called so." : "There are no topics yet.",
    },
  );
}

function row(one, now) {
  return [
    h("a", { href: `#/topics/${encodeURIComponent(one.topic)}` }, one.topic),
    one.cleanup_policy,
    count(one.partitions),
    count(one.offsets),
    size(one.size_bytes),
    ratio(one.dirty_ratio),
    one.dirty_ratio === null ? "–" : size(one.cleanable_bytes),
    h("span", { title: time(one.last_timestamp) }, ago(one.last_timestamp, now)),
    badge(one),
  ];
}
