// Asks the broker. An answer that refuses becomes a Refusal, whose message is the broker's own words.

class Refusal extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

// Whether it is a matter of who asks.
export function isRefused(error) {
  return [401, 403].includes(error.status);
}

// What a view that was left has asked is not waited for.
let leaving = new AbortController();

export function leave() {
  leaving.abort();
  leaving = new AbortController();
}

export function whileShown() {
  return leaving.signal;
}

export function path(...parts) {
  return "/api/" + parts.map((part) => encodeURIComponent(part)).join("/");
}

export function get(url, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  const asked = new URLSearchParams(given).toString();
  return answered(fetch(asked ? `${url}?${asked}` : url, { signal: signal ?? leaving.signal }));
}

export function post(url, body) {
  return answered(fetch(url, asJson(body)));
}

// As post, for what takes a while: each line before the last one goes to onProgress.
export async function watch(url, body, onProgress) {
  const request = asJson(body);
  request.headers.Accept = "application/x-ndjson";
  const response = await reached(fetch(url, request));
  if (!response.ok) throw await refusal(response);
  let latest = null;
  for await (const line of lines(response.body)) {
    if (latest) onProgress(latest);
    latest = JSON.parse(line);
  }
  if (!latest || !latest.partitions) throw new Refusal("the broker stopped before it was done");
  return latest;
}

function asJson(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

async function answered(asked) {
  const response = await reached(asked);
  if (!response.ok) throw await refusal(response);
  return read(await reached(response.text(), "the answer of the broker broke off"));
}

// Offsets have 64 bits, more than a number here: such a one stays the digits that came.
function read(text) {
  const exact = (_, value, { source } = {}) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? source : value;
  return /\d{16}/.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

async function reached(asked, trouble = "the broker does not answer") {
  try {
    return await asked;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(trouble);
  }
}

async function refusal(response) {
  try {
    return new Refusal((await response.json()).error, response.status);
  } catch {
    return new Refusal(`the broker answered ${response.status}`, response.status);
  }
}

async function* lines(body) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reached(reader.read(), "the broker stopped before it was done");
    if (done) break;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}
