// Who may do how much, who is held back now, and which quota holds for whom and why.

import { get, path } from "../api.js";
import { field, form, go, h, kept, table, trouble } from "../dom.js";
import { amount, count, duration, entity, quota, readable } from "../format.js";
import { when } from "./parts.js";

const WHO = ["user", "client-id", "ip"];

export async function quotasView(asked) {
  const who = Object.fromEntries(WHO.map((kind) => [kind, asked.get(kind) ?? ""]));
  const answer = await get(path("quotas"));
  const fields = [
    field("user", "user", who.user, { placeholder: "ANONYMOUS" }),
    field("client-id", "client id", who["client-id"]),
    field("ip", "address", who.ip),
  ];
  const node = h(
    "section",
    {},
    h("h1", {}, "Quotas"),
    h("h2", {}, "Told to wait"),
    waiting(answer),
    answer.listeners.filter(isTold).map(listener),
    h("h2", {}, "Set"),
    set(answer),
    h("h2", {}, "What holds for whom"),
    kept(address(who), () => form(fields, "Explain", (values) => go(address(values)))),
    await explained(who),
  );
  return { node, every: 3 };
}

function address(who) {
  const given = new URLSearchParams(WHO.filter((kind) => who[kind]).map((kind) => [kind, who[kind]]));
  return given.size ? `#/quotas?${given}` : "#/quotas";
}

function waiting(answer) {
  const headings = [
    "who",
    "quota",
    ["value", "number"],
    ["now", "number"],
    "waits for",
    ["times", "number"],
    "all together",
    "last",
  ];
  return table(
    headings,
    answer.waiting.map((one) => [
      h("a", { href: address(one.counted) }, entity(one.counted)),
      one.quota,
      one.limit === null ? "none any more" : quota(one.quota, one.limit),
      now(one),
      one.waits_ms ? h("span", { class: "badge due" }, duration(one.waits_ms)) : "–",
      count(one.times),
      duration(one.told_ms),
      when(one.last_ms),
    ]),
    { empty: "Nobody had to wait." },
  );
}

function now(one) {
  if (one.tokens !== undefined) return `${amount(one.tokens)} at once`;
  return one.rate === undefined ? "–" : quota(one.quota, one.rate);
}

// Whether it has a rate, which is not that of all listeners together where there is only one.
function isTold(one, at, rows) {
  return one.limit !== null && (at === 0 || rows.length > 2 || one.limit !== rows[0].limit);
}

function listener(one) {
  const whose = one.listener === null ? "All listeners together" : `Listener ${one.listener}`;
  const rates = `${amount(one.limit)} connections/s; ${amount(one.rate)} now, ${count(one.waiting)} wait.`;
  return h("p", {}, `${whose}: max.connection.creation.rate ${rates}`);
}

function set(answer) {
  return table(
    ["of", "quota", ["value", "number"]],
    answer.quotas.flatMap((one) =>
      Object.entries(one.values).map(([key, value]) => [entity(one.entity), key, quota(key, value)]),
    ),
    { empty: "There are no quotas." },
  );
}

async function explained(who) {
  if (!WHO.some((kind) => who[kind])) return null;
  try {
    const answer = await get(path("quotas", "explain"), who);
    const isOfAddress = (one) => one.quota === "connection_creation_rate";
    return [
      answer.quotas.map((one) =>
        h("p", {}, h("b", {}, one.quota), `: ${readable(one.sentence)}`),
      ),
      rules(answer.quotas.filter((one) => !isOfAddress(one))),
      rules(answer.quotas.filter(isOfAddress)),
    ];
  } catch (error) {
    return trouble(error);
  }
}

// All that could hold, the most exact first.
function rules(rows) {
  if (!rows.length) return null;
  const headings = ["the first that is set holds", ...rows.map((row) => [row.quota, "number"])];
  const value = (row, rule) => {
    if (rule.value === null) return "–";
    const words = quota(row.quota, rule.value);
    return rule.holds ? h("b", {}, words) : words;
  };
  return table(
    headings,
    rows[0].rules.map((one, at) => [
      `${at + 1}. ${entity(one.entity)}`,
      ...rows.map((row) => value(row, row.rules[at])),
    ]),
  );
}
