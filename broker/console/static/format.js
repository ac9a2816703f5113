// Numbers and bytes as a person reads them; the same forms as `kompakt topics`.

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];
const DURATIONS = [
  ["days", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];
const NO_TIMESTAMP = -1;
const THIN = "\u202f";
const QUOTA_UNITS = {
  producer_byte_rate: "bytes/s",
  consumer_byte_rate: "bytes/s",
  request_percentage: "%",
  controller_mutation_rate: "partitions/s",
  connection_creation_rate: "connections/s",
};
const ENTITY_WORDS = { user: "user-principal", "client-id": "client-id", ip: "ip" };
const FROM_HERE_WHOLE = 10_000;

export function count(value) {
  if (value === null || value === undefined) return "–";
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

// A number as it is shown, or as it is written elsewhere, without what sets its digits apart.
export function digits(text) {
  return text.replace(/\s/g, "");
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit + 1 < UNITS.length) {
    value /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${bytes} bytes` : `${value.toFixed(1)} ${UNITS[unit]}`;
}

export function time(ms) {
  if (ms === null || ms === undefined || ms === NO_TIMESTAMP) return "–";
  const date = new Date(Number(ms));
  if (Number.isNaN(date.valueOf())) return `${ms} ms`;
  return (
    date
      .toISOString()
      .replace("T", " ")
      .replace("Z", "")
      .replace(/\.000$/, "") + " UTC"
  );
}

export function duration(ms) {
  for (const [name, length] of DURATIONS) {
    if (ms >= 2 * length) return `${Number((ms / length).toPrecision(3))} ${name}`;
  }
  return `${Math.round(ms)} ms`;
}

export function ago(ms, now) {
  if (ms === null || ms === undefined) return "–";
  return ms > now ? `in ${duration(ms - now)}` : `${duration(now - ms)} ago`;
}

export function ratio(value) {
  return value === null || value === undefined ? "–" : value.toFixed(2);
}

export function percent(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(1)} %` : "–";
}

export function removed(counts) {
  const words = Object.entries(counts ?? {})
    .filter(([, many]) => many)
    .map(([why, many]) => `${count(many)} ${why.replaceAll("_", " ")}`);
  return words.join(", ") || "nothing";
}

// What is in a key, a value or a header: its text, or its bytes in hex.
export function bytesText(row, name) {
  const base64 = row[`${name}_base64`];
  if (base64 === null) return null;
  const text = row[name];
  const shown = text === null ? hex(base64) : readable(text);
  const all = row[`${name}_bytes`];
  return all !== undefined && all > atob(base64).length ? `${shown}… (${count(all)} bytes)` : shown;
}

// Letters that cannot be seen, but turn around or hide what stands beside them; line ends and tabs stay.
const UNSEEN = /(?![\t\n])[\p{Cc}\p{Cf}]/gu;

export function readable(text) {
  return text.replace(UNSEEN, (letter) => "\\u{" + letter.codePointAt(0).toString(16) + "}");
}

function hex(base64) {
  return (
    "0x" + Array.from(atob(base64), (letter) => letter.charCodeAt(0).toString(16).padStart(2, "0")).join("")
  );
}

// Of a quota or of what is done under it. A value that is no finite number comes as its name.
export function quota(key, value) {
  return QUOTA_UNITS[key] ? `${amount(value)} ${QUOTA_UNITS[key]}` : amount(value);
}

export function amount(value) {
  if (typeof value === "string") return value;
  if (Math.abs(value) >= FROM_HERE_WHOLE) return count(Math.round(value));
  const rounded = Number(value.toFixed(3));
  return String(rounded || value).replace(/^(-?\d)(\d{3})(?=\.|$)/, `$1${THIN}$2`);
}

// user-principal 'alice', the default client-id: as Kafka's tool says it.
export function entity(names) {
  return Object.entries(ENTITY_WORDS)
    .filter(([kind]) => kind in names)
    .map(([kind, words]) =>
      names[kind] === null ? `the default ${words}` : `${words} '${readable(names[kind])}'`,
    )
    .join(", ");
}
