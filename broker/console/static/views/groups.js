// Consumer groups: who reads, from where, and how much is left.

import { get, path, post } from "../api.js";
import { answered, button, choice, facts, field, h, kept, sure, table } from "../dom.js";
import { ago, count, digits, readable } from "../format.js";
import { groupLink, NAMELESS, topicLink, when } from "./parts.js";

// A group may be called ".." or nothing at all, which no path of a browser holds.
function about(group, ...rest) {
  return `${path("group", ...rest)}?${new URLSearchParams({ group })}`;
}

export async function groupsView() {
  const answer = await get(path("groups"));
  const headings = ["group", "protocol", "state", ["members", "number"], "topics", ["lag", "number"]];
  const node = h(
    "section",
    {},
    h("h1", {}, "Groups"),
    table(
      headings,
      answer.groups.map((one) => [
        groupLink(one.group),
        one.type,
        one.state,
        count(one.members),
        one.topics.map((topic) => [topicLink(topic), " "]),
        count(one.lag),
      ]),
      { empty: "There are no groups yet." },
    ),
  );
  return { node, every: 3 };
}

export async function groupView(name, query, again) {
  const answer = await get(about(name));
  const topics = [...new Set(answer.offsets.map((one) => one.topic))];
  const node = h(
    "section",
    {},
    h("h1", {}, readable(name) || NAMELESS),
    facts([
      ["state", answer.state],
      ["protocol", answer.type],
      ["assignor", answer.assignor && readable(answer.assignor)],
      [answer.type === "classic" ? "generation" : "epoch", count(answer.epoch)],
    ]),
    h("h2", {}, "Where it stands"),
    answer.type === "share" ? shared(answer) : standing(answer),
    h("h2", {}, "Members"),
    members(answer),
    h("h2", {}, "Read on elsewhere"),
    answer.members.length
      ? h("p", { class: "quiet" }, "Its members commit where they are: stop them first.")
      : kept(JSON.stringify([name, topics]), () => h("div", {}, resetting(answer, topics, again))),
  );
  return { node, every: 3 };
}

function standing(answer) {
  const headings = [
    "partition",
    ["committed", "number"],
    ["end", "number"],
    ["lag", "number"],
    ["records left", "number"],
    "member",
    "committed at",
    "kept until",
    "metadata",
  ];
  return table(
    headings,
    answer.offsets.map((one) => [
      topicLink(one.topic, one.partition),
      committed(one),
      count(one.high_watermark),
      count(one.lag),
      one.records_left === null ? "too many to count" : count(one.records_left),
      one.member_id && readable(one.member_id),
      when(one.committed_ms),
      one.committed_offset === null ? "–" : keptUntil(one, answer.now_ms),
      readable(one.metadata ?? "") || "–",
    ]),
    { empty: "It has committed nothing." },
  );
}

// Where it cannot read on, its readers begin anew, by their auto.offset.reset.
function committed(one) {
  const offset = count(one.committed_offset);
  const badge = (title) => h("span", { class: "badge bad", title }, offset);
  if (one.is_below_start) return badge(`the log begins at ${one.log_start_offset}`);
  if (one.is_beyond_end) return badge(`the log ends at ${one.high_watermark}`);
  return offset;
}

// A share group commits nothing: it stands at the first record whose delivery is not over.
function shared(answer) {
  const headings = [
    "partition",
    ["starts at", "number"],
    ["end", "number"],
    ["lag", "number"],
    ["with members now", "number"],
  ];
  return table(
    headings,
    answer.offsets.map((one) => [
      topicLink(one.topic, one.partition),
      count(one.start_offset),
      count(one.high_watermark),
      count(one.lag),
      count(one.acquired),
    ]),
    { empty: "It reads nothing." },
  );
}

function keptUntil(one, now) {
  return one.expires_ms === null ? "for good" : ago(one.expires_ms, now);
}

function members(answer) {
  const headings = ["member", "client", "host", "subscribed to", "has"];
  return table(
    headings,
    answer.members.map((one) => [
      readable(one.instance_id ? `${one.member_id} (${one.instance_id})` : one.member_id),
      readable(one.client_id),
      one.host,
      readable([...one.subscribed, one.regex].filter(Boolean).join(", ")) || "–",
      one.partitions.length
        ? one.partitions.map((place) => [topicLink(place.topic, place.partition), " "])
        : "nothing",
    ]),
    { empty: "Nobody is in it now." },
  );
}

// Where the group shall read on: first a preview, then for good.
function resetting(answer, topics, again) {
  if (!topics.length) return h("p", { class: "quiet" }, "It has committed nothing.");
  const said = h("div", { class: "said" });
  const fields = h(
    "form",
    { class: "fields" },
    choice(
      "topic",
      "of",
      topics.map((one) => [one, one]),
      topics[0],
    ),
    choice(
      "to",
      "from",
      [
        ["earliest", "the first record"],
        ["latest", "the end"],
        ["offset", "offset"],
        ["time", "time in ms"],
      ],
      "earliest",
    ),
    field("value", "", "", { inputmode: "numeric", "aria-label": "offset or time" }),
    h("button", {}, "Preview"),
    button("Reset", () => reset(answer.group, fields, false, said, again), "danger"),
  );
  fields.addEventListener("submit", (event) => {
    event.preventDefault();
    reset(answer.group, fields, true, said, again);
  });
  return [fields, said];
}

async function reset(group, fields, isDry, said, again) {
  const { topic, to, value: written } = Object.fromEntries(new FormData(fields));
  const value = digits(written);
  const body = { topic, to, dry_run: isDry };
  if (to === "offset" || to === "time") body.value = /^\d+$/.test(value) ? Number(value) : value;
  const where = {
    earliest: "the first record",
    latest: "the end",
    offset: `offset ${value}`,
    time: `${value} ms`,
  };
  const whom = readable(group) || "the group without a name";
  const words = `Let ${whom} read ${topic} from ${where[to]} on? What it has committed is replaced.`;
  if (!isDry && !(await sure(words, "Reset"))) return;
  await answered(said, async () => placed(await post(about(group, "reset"), body)));
  if (!isDry) await again();
}

function placed(answer) {
  const headings = [["partition", "number"], ["committed", "number"], ["will read from", "number"], ""];
  const rows = answer.partitions.map((one) => [
    one.partition,
    count(one.committed_offset),
    count(one.new_offset),
    one.error ?? "",
  ]);
  return [table(headings, rows)];
}
