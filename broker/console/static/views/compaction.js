// Why each partition is or is not compacted, what a cleaning would give back, what was done; compact now.

import { get, path, post, watch } from "../api.js";
import { answered, button, choice, facts, field, form, h, kept, sure, trouble } from "../dom.js";
import { count, ratio, removed, size, time } from "../format.js";
import { cleanings } from "./broker.js";
import { before, sentence } from "./parts.js";

export async function compactionTab(topic, _, again) {
  const [why, history] = await Promise.all([
    get(path("topics", topic.topic, "explain")),
    get(path("topics", topic.topic, "history")),
  ]);
  const said = kept(`what was said of ${topic.topic}`, () => h("div", { class: "said", role: "status" }));
  const runs = history.partitions.flatMap((one) => one.runs.map((run) => [one.partition, run]));
  runs.sort((a, b) => (b[1].last_ms ?? b[1].started_ms) - (a[1].last_ms ?? a[1].started_ms));
  const node = h(
    "div",
    {},
    why.partitions.map((one) => explained(topic, one, said, again)),
    h("h2", {}, "Compact"),
    kept(`what is asked of ${topic.topic}`, () => h("div", {}, asking(topic, said, again))),
    said,
    h("h2", {}, "What the cleaner did"),
    cleanings(runs, "It was never cleaned here."),
  );
  return { node, every: 0 };
}

function explained(topic, one, said, again) {
  const isOffline = one.reason === "offline";
  return h(
    "article",
    { class: isOffline || one.reason === "uncleanable" ? "partition bad" : "partition" },
    h("h3", {}, `Partition ${one.partition}`),
    h("p", {}, sentence(one.sentence)),
    one.dirty_ratio === undefined
      ? null
      : facts([
          [
            "dirty ratio",
            `${ratio(one.dirty_ratio)} of ${one.min_cleanable_dirty_ratio} (min.cleanable.dirty.ratio)`,
          ],
          ["clean", size(one.clean_bytes)],
          [
            "cleanable",
            `${size(one.cleanable_bytes)}, offsets ${count(one.first_dirty_offset)} to ` +
              `${count(one.cleanable_to_offset)}`,
          ],
          ["active segment", `${size(one.active_bytes)} of ${size(one.segment_bytes)}`],
          one.next_eligible_ms !== null && ["next eligible", time(one.next_eligible_ms)],
        ]),
    isOffline && button("Open it again now", () => reopen(topic, one, said, again)),
  );
}

async function reopen(topic, one, said, again) {
  try {
    const answer = await post(path("topics", topic.topic, "reopen"), { partition: one.partition });
    const [row] = answer.partitions;
    if (row.error)
      said.replaceChildren(trouble({ message: `Partition ${one.partition} stays offline: ${row.error}` }));
    else again();
  } catch (error) {
    said.replaceChildren(trouble(error));
  }
}

function asking(topic, said, again) {
  const all = [
    ["", "all partitions"],
    ...topic.partitions.map((one) => [one.partition, `partition ${one.partition}`]),
  ];
  const fields = [
    choice("partition", "of", all, ""),
    h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", name: "roll", value: "1" }),
      " close the active segment first",
    ),
  ];
  const settings = field("set", "with other settings", "", {
    size: 40,
    placeholder: "min.cleanable.dirty.ratio=0.1 …",
    title: "KEY=VALUE, separated by spaces",
  });
  return [
    form([fields[0], fields[1], settings], "Dry run", (values) => compact(topic, values, true, said, again)),
    button("Compact now", () => compactNow(topic, fields, said, again), "danger"),
  ];
}

async function compactNow(topic, fields, said, again) {
  const partition = fields[0].querySelector("select").value;
  const roll = fields[1].querySelector("input").checked;
  const what =
    partition === "" ? `all partitions of ${topic.topic}` : `partition ${partition} of ${topic.topic}`;
  const words =
    `Compact ${what} now${roll ? ", the active segment too" : ""}? Records that a younger one of their ` +
    "key supersedes are removed for good.";
  if (await sure(words, "Compact"))
    await compact(topic, { partition, roll: roll && "1" }, false, said, again);
}

async function compact(topic, values, isDry, said, again) {
  const body = { roll: Boolean(values.roll), dry_run: isDry };
  if (values.partition !== "") body.partition = Number(values.partition);
  const bar = h("progress", { "aria-label": "progress" });
  const words = h("span", {});
  said.replaceChildren(h("p", {}, bar, " ", words));
  await answered(said, async () => {
    if (values.set) body.set = settingsOf(values.set);
    const answer = await watch(path("topics", topic.topic, "compact"), body, (line) => {
      bar.max = line.bytes_at_most || 1;
      bar.value = line.bytes_done;
      const done = `${size(line.bytes_done)} of ${size(line.bytes_at_most)}`;
      words.textContent = `partition ${line.partition}: ${done}`;
    });
    return answer.partitions.map(result);
  });
  if (!isDry) await again();
}

function settingsOf(text) {
  const pairs = text
    .trim()
    .split(/\s+/)
    .map((one) => {
      const at = one.indexOf("=");
      if (at < 1) throw new Error(`${one} is no KEY=VALUE`);
      return [one.slice(0, at), one.slice(at + 1)];
    });
  return Object.fromEntries(pairs);
}

function result(one) {
  if (one.error)
    return h("p", { class: "trouble" }, `Partition ${one.partition} was not cleaned: ${one.error}`);
  const told = [
    `Partition ${one.partition}: ${before(one.records_before, one.records_after, count)} records, `,
    `${before(one.bytes_before, one.bytes_after, size)}; removed: ${removed(one.removed)}.`,
  ];
  if (one.is_dry)
    told.push(one.held_back_by ? ` ${one.held_back_by}.` : "", " A dry run: nothing was written.");
  return h("p", {}, told.join(""));
}
