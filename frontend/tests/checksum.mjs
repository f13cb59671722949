// What uploads say of their bytes, reckoned by somebody else's hand.
import { crc32 } from "node:zlib";

/** What `Upload-Checksum` has to say of these bytes. */
export function checksumOf(bytes) {
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(bytes));
  return `crc32 ${sum.toString("base64")}`;
}
