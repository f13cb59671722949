// Paths as the API takes them: text, or base64url of the bytes where a name is no text. Nothing here takes a name for anything but bytes.

const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Bytes as forms send them. */
export const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const fromBase64Url = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

/** The bytes of an entry's or a directory's path. */
export const bytesOf = (at) => (at.raw_path == null ? encoder.encode(at.path) : fromBase64Url(at.raw_path));

/** The bytes of text. */
export const bytesOfText = (text) => encoder.encode(text);

/** The bytes of a path's last name. */
export const lastName = (bytes) => bytes.slice(bytes.lastIndexOf(0x2f) + 1);

/** The directory that a path lies in. */
export const above = (bytes) => bytes.slice(0, Math.max(0, bytes.lastIndexOf(0x2f)));

/** A path below a directory. */
export function join(directory, rest) {
  if (directory.length === 0) return rest;
  const whole = new Uint8Array(directory.length + 1 + rest.length);
  whole.set(directory);
  whole[directory.length] = 0x2f;
  whole.set(rest, directory.length + 1);
  return whole;
}

/** A path as the field `name` of a request, or as `raw_name`. */
export function field(name, bytes) {
  try {
    return { [name]: strict.decode(bytes) };
  } catch {
    return { [`raw_${name}`]: base64url(bytes) };
  }
}

/** A path as a page shows it, where it is text. */
export const text = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

/** An address with a path in it. */
export function address(place, bytes, more = {}) {
  const query = new URLSearchParams({ ...(bytes.length > 0 ? field("path", bytes) : {}), ...more });
  return query.size > 0 ? `${place}?${query}` : place;
}

/** Standard base64, as the upload protocol has it. */
export const toBase64 = (bytes) => btoa(String.fromCharCode(...bytes));
