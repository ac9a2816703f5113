// One topic: its tabs, its partitions, its settings.

import { get, path } from "../api.js";
import { h, table } from "../dom.js";
import { count, size } from "../format.js";
import { compactionTab } from "./compaction.js";
import { findTab } from "./find.js";
import { groupLink } from "./parts.js";
import { recordsTab } from "./records.js";
import { segmentsTab } from "./segments.js";
import { tableTab } from "./table.js";

const TABS = {
  partitions: ["Partitions", partitionsTab],
  compaction: ["Compaction", compactionTab],
  segments: ["Segments", segmentsTab],
  table: ["Table", tableTab],
  records: ["Records", recordsTab],
  find: ["Find", findTab],
  settings: ["Settings", settingsTab],
};

export async function topicView(name, tab, query, again) {
  const topic = await get(path("topics", name));
  const chosen = TABS[tab] ? tab : "partitions";
  const { node, every } = await TABS[chosen][1](topic, query, again);
  const links = Object.entries(TABS).map(([key, [words]]) =>
    h(
      "a",
      {
        href: `#/topics/${encodeURIComponent(name)}/${key}`,
        "aria-current": key === chosen ? "page" : null,
      },
      words,
    ),
  );
  return {
    node: h(
      "section",
      {},
      h("h1", {}, name),
      topic.warning && h("p", { class: "trouble" }, topic.warning),
      h("nav", { class: "tabs", "aria-label": "Of this topic" }, links),
      node,
    ),
    every,
  };
}

async function partitionsTab(topic) {
  const headings = [
    ["partition", "number"],
    ["log start", "number"],
    ["last stable", "number"],
    ["high watermark", "number"],
    ["log end", "number"],
    ["size", "number"],
    ["segments", "number"],
    ["producers", "number"],
    ["open transactions", "number"],
    "directory",
  ];
  const rows = topic.partitions.map((one) => {
    if (!one.is_served)
      return { style: "bad", cells: [one.partition, "is not served", ...Array(8).fill("")] };
    const cells = [
      one.partition,
      count(one.log_start_offset),
      count(one.last_stable_offset),
      count(one.high_watermark),
      count(one.log_end_offset),
      size(one.size_bytes),
      count(one.segments),
      count(one.producers),
      count(one.open_transactions),
      one.directory,
    ];
    return one.offline_reason
      ? { style: "bad", cells: [...cells.slice(0, 9), `offline: ${one.offline_reason}`] }
      : cells;
  });
  const node = h(
    "div",
    {},
    table(headings, rows),
    h("h2", {}, "Groups that read it"),
    readers(topic),
    h("p", { class: "quiet" }, `topic id ${topic.topic_id}`),
  );
  return { node, every: 3 };
}

function readers(topic) {
  const ends = new Map(topic.partitions.map((one) => [one.partition, one]));
  const headings = ["group", ["partition", "number"], ["committed", "number"], ["lag", "number"]];
  return table(
    headings,
    topic.groups.map((one) => {
      const log = ends.get(one.partition);
      const lag = log?.is_served
        ? Math.max(0, log.high_watermark - Math.max(one.offset, log.log_start_offset))
        : null;
      return [
        groupLink(one.group),
        one.partition,
        count(one.offset),
        count(lag),
      ];
    }),
    { empty: "No group has committed an offset of it." },
  );
}

async function settingsTab(topic) {
  if (topic.configs === null) {
    return { node: h("p", { class: "quiet" }, "To see them needs DESCRIBE_CONFIGS of the topic."), every: 0 };
  }
  const rows = topic.configs.map((one) => ({
    style: one.source === "topic" ? "set" : null,
    cells: [
      h("span", { title: one.documentation }, one.name),
      one.value,
      one.source.replaceAll("_", " "),
      one.source === "topic" ? one.inherited : "",
    ],
  }));
  const node = h(
    "div",
    {},
    table(["setting", "value", "set by", "without that"], rows),
    h(
      "p",
      { class: "quiet" },
      "Change them with any admin client: kafka-configs.sh, or AdminClient's incremental_alter_configs.",
    ),
  );
  return { node, every: 0 };
}
