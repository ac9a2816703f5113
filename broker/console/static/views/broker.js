// The broker: its disks, its cleaner, and what the cleaner did.

import { get, path } from "../api.js";
import { facts, h, table } from "../dom.js";
import { ago, count, percent, removed, size, time } from "../format.js";
import { before, problems, topicLink, when } from "./parts.js";

const DAY_MS = 86_400_000;
const SOON_MS = 3 * DAY_MS;

export async function brokerView() {
  const answer = await get(path("broker"));
  const cleaner = answer.cleaner;
  const node = h(
    "section",
    {},
    h("h1", {}, "Broker"),
    facts([
      ["version", answer.version],
      ["cluster", `${answer.cluster_id}, node ${answer.node_id}`],
      ["started", h("span", { title: time(answer.started_ms) }, ago(answer.started_ms, answer.now_ms))],
      ["topics and partitions", `${count(answer.topics)} and ${count(answer.partitions)}`],
      ["groups", count(answer.groups)],
      ["connections", count(answer.connections)],
      ["open files", `${count(answer.open_files)} of ${count(answer.open_files_limit)}`],
    ]),
    answer.offline_partitions.map((one) =>
      h("p", { class: "trouble" }, topicLink(one.topic, one.partition), ` is offline: ${one.reason}`),
    ),
    h("h2", {}, "Listeners"),
    table(
      ["name", "protocol", "address", "clients are told"],
      answer.listeners.map((one) => [one.name, one.security_protocol, one.address, one.advertised]),
    ),
    h("h2", {}, "Disks"),
    disks(answer),
    answer.moves.map((one) =>
      h(
        "p",
        {},
        topicLink(one.topic, one.partition),
        ` moves to ${one.directory}: ${size(one.copied_bytes)} of ${size(one.size_bytes)}`,
      ),
    ),
    growing(answer),
    h("h2", {}, "Cleaner"),
    cleaner.problem && problems([`Nothing is cleaned: ${cleaner.problem}`]),
    facts([
      [
        "threads",
        cleaner.is_running
          ? `${cleaner.threads - cleaner.dead_threads} of ${cleaner.threads} at work`
          : `off (${cleaner.off_by})`,
      ],
      [
        "limit",
        cleaner.bytes_per_second_at_most === null
          ? "none"
          : `${size(cleaner.bytes_per_second_at_most)} a second`,
      ],
      ["cleanable", size(cleaner.cleanable_bytes)],
      ["due now", `${count(cleaner.eligible_partitions)} partitions`],
    ]),
    cleaner.uncleanable.map((one) =>
      h("p", { class: "trouble" }, topicLink(one.topic, one.partition), ` cannot be cleaned: ${one.error}`),
    ),
    h("h2", {}, "The last cleanings"),
    cleanings(
      answer.recent_cleanings.map((run) => [topicLink(run.topic, run.partition), run]),
      "Nothing was cleaned yet.",
    ),
  );
  return { node, every: 3 };
}

function disks(answer) {
  const headings = [
    "directory",
    ["logs", "number"],
    ["free", "number"],
    ["of", "number"],
    ["used", "number"],
    "forecast",
  ];
  return table(
    headings,
    answer.directories.map((one) => [
      one.is_offline ? [one.path, " ", h("span", { class: "badge bad" }, "offline")] : one.path,
      size(one.log_bytes),
      size(one.free_bytes),
      size(one.total_bytes),
      one.problem ?? percent(one.total_bytes - one.free_bytes, one.total_bytes),
      one.forecast === null ? "–" : h("span", { class: dueClass(one.forecast) }, one.forecast.sentence),
    ]),
  );
}

function dueClass(forecast) {
  return forecast.full_in_ms !== null && forecast.full_in_ms < SOON_MS ? "trouble" : "";
}

// What makes the disks full: the topics that grow fastest.
function growing(answer) {
  const rows = answer.directories.flatMap((one) => one.forecast?.topics ?? []);
  if (!rows.length) return null;
  return table(
    ["grows fastest", ["a day", "number"], ["levels off at", "number"]],
    rows.map((one) => [
      topicLink(one.topic),
      size(Math.round((one.bytes_per_second * DAY_MS) / 1000)),
      one.levels_off_at_bytes === null ? "never" : size(one.levels_off_at_bytes),
    ]),
  );
}

// Each run with the link or number of its partition, the latest first.
export function cleanings(runs, empty) {
  const headings = [
    "partition",
    "when",
    "why",
    "dirty offsets",
    ["records", "number"],
    ["bytes", "number"],
    ["seconds", "number"],
    "removed",
  ];
  return table(
    headings,
    runs.map(([name, run]) =>
      run.error
        ? {
            style: "bad",
            cells: [name, when(run.last_ms), `failed ${run.failures}×: ${run.error}`, "", "", "", "", ""],
          }
        : [
            name,
            when(run.started_ms),
            run.cause,
            `${count(run.first_dirty_offset)} to ${count(run.end_offset)}`,
            before(run.records_before, run.records_after, count),
            before(run.bytes_before, run.bytes_after, size),
            run.seconds.toFixed(3),
            removed(run.removed),
          ],
    ),
    { empty },
  );
}
