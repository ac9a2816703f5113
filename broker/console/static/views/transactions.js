// What is open, and holds readers of committed records and the cleaner back; every transactional id.

import { get, path, post } from "../api.js";
import { button, h, kept, sure, table, trouble } from "../dom.js";
import { ago, count, duration, readable } from "../format.js";
import { topicLink, when } from "./parts.js";

export async function transactionsView(_, again) {
  const answer = await get(path("transactions"));
  const said = kept("what was aborted", () => h("div", { class: "said" }));
  const node = h(
    "section",
    {},
    h("h1", {}, "Transactions"),
    h("h2", {}, "Open"),
    said,
    opened(answer, said, again),
    h("h2", {}, "Transactional ids"),
    known(answer),
  );
  return { node, every: 3 };
}

function opened(answer, said, again) {
  const headings = [
    "partition",
    "transactional id",
    ["producer", "number"],
    ["first offset", "number"],
    ["held back", "number"],
    "aborted by itself",
    "",
  ];
  return table(
    headings,
    answer.open.map((one) => [
      topicLink(one.topic, one.partition),
      one.transactional_id && readable(one.transactional_id),
      one.producer_id,
      count(one.first_offset),
      count(one.high_watermark - one.last_stable_offset),
      one.aborted_ms === null ? "never: nobody here knows of it" : ago(one.aborted_ms, answer.now_ms),
      button("Abort", () => abort(one, said, again), "danger"),
    ]),
    { empty: "No transaction is open." },
  );
}

async function abort(one, said, again) {
  const where = `${one.topic}-${one.partition}`;
  const words =
    `Abort the transaction of producer ${one.producer_id}, open in ${where} since offset ` +
    `${one.first_offset}? It ends in all its partitions, and a producer that is still there is fenced.`;
  if (!(await sure(words, "Abort it"))) return;
  try {
    const body = { partition: one.partition, start_offset: one.first_offset };
    const answer = await post(path("topics", one.topic, "abort"), body);
    const refused = answer.partitions.find((row) => row.error);
    said.replaceChildren();
    if (refused) said.replaceChildren(trouble({ message: `${where}: ${refused.error}` }));
    await again();
  } catch (error) {
    said.replaceChildren(trouble(error));
  }
}

function known(answer) {
  const headings = [
    "transactional id",
    "state",
    ["producer", "number"],
    ["epoch", "number"],
    "timeout",
    "changed",
    "partitions",
  ];
  const more = answer.count - answer.ids.length;
  return [
    table(
      headings,
      answer.ids.map((one) => [
        readable(one.transactional_id),
        one.state,
        one.producer_id,
        one.producer_epoch,
        duration(one.timeout_ms),
        when(one.updated_ms),
        one.partitions.map((place) => [topicLink(place.topic, place.partition), " "]),
      ]),
      { empty: "There is none." },
    ),
    more > 0 && h("p", { class: "quiet" }, `${count(more)} that changed before these are not shown.`),
  ].filter(Boolean);
}
