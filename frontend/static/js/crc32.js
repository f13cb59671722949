// CRC-32 as IEEE 802.3, gzip and zip have it: of bytes that are there, and of a blob, which is read a part at a time. Knows neither the page
// nor the worker, which both use it.

/** Bytes of a blob that are in memory at once, twice. */
const PART = 4 * 1024 * 1024;
const POLYNOMIAL = 0xedb88320;

/** What a byte does to the sum, by how many bytes come behind it, 0 to 15: sixteen bytes then cost one step, not sixteen that wait for each other. */
function tables() {
  const all = Array.from({ length: 16 }, () => new Uint32Array(256));
  for (let byte = 0; byte < 256; byte += 1) {
    let sum = byte;
    for (const table of all) {
      for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ POLYNOMIAL : sum >>> 1;
      table[byte] = sum;
    }
  }
  return all;
}

const [T0, T1, T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12, T13, T14, T15] = tables();

/** The sum of `bytes`, or of what had the sum `before` with `bytes` behind it. */
export function crc32(bytes, before = 0) {
  // A view reads words from any place and in the order that is asked for, whatever the processor's is.
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let sum = ~before;
  let at = 0;
  for (const end = bytes.byteLength - 15; at < end; at += 16) {
    const a = sum ^ view.getInt32(at, true);
    const b = view.getInt32(at + 4, true);
    const c = view.getInt32(at + 8, true);
    const d = view.getInt32(at + 12, true);
    sum =
      T15[a & 255] ^ T14[(a >>> 8) & 255] ^ T13[(a >>> 16) & 255] ^ T12[a >>> 24] ^
      T11[b & 255] ^ T10[(b >>> 8) & 255] ^ T9[(b >>> 16) & 255] ^ T8[b >>> 24] ^
      T7[c & 255] ^ T6[(c >>> 8) & 255] ^ T5[(c >>> 16) & 255] ^ T4[c >>> 24] ^
      T3[d & 255] ^ T2[(d >>> 8) & 255] ^ T1[(d >>> 16) & 255] ^ T0[d >>> 24];
  }
  for (; at < bytes.byteLength; at += 1) sum = T0[(sum ^ view.getUint8(at)) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}

/** The sum of a blob. The next part is read while one is summed up, and whoever calls has its thread back between the parts. */
export async function crc32Of(blob) {
  const part = (at) => blob.slice(at, at + PART).arrayBuffer();
  let sum = 0;
  let coming = part(0);
  for (let next = PART; ; next += PART) {
    const bytes = new Uint8Array(await coming);
    if (next < blob.size) coming = part(next);
    sum = crc32(bytes, sum);
    if (next >= blob.size) return sum;
  }
}
