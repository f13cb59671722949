// Names, sizes and permissions of files as people read them: by the same rules and words as the server's rows (views/shown.rs).
import { say } from "./words.js";

const TURNING = /[\u0080-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** A name as it is shown: control characters as their pictures, what would turn the writing around as U+FFFD, and all else as it is. */
export function plain(name) {
  const picture = (c) => (c === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + c.charCodeAt(0)));
  return name.replace(/[\u0000-\u001f\u007f]/g, picture).replace(TURNING, "\ufffd");
}

/** A size with three digits at most, or so many bytes. */
export function size(bytes) {
  if (bytes == null) return "";
  if (bytes < 1024) return say("size_bytes", { n: bytes });
  let power = 1;
  const tenths = () => Math.round((bytes * 10) / 1024 ** power);
  while (power < 5 && tenths() >= 10_240) power += 1;
  const t = tenths();
  const n = t < 100 && t % 10 ? `${Math.floor(t / 10)}.${t % 10}` : Math.round(t / 10);
  if (power === 1) return say("size_kib", { n });
  if (power === 2) return say("size_mib", { n });
  if (power === 3) return say("size_gib", { n });
  return power === 4 ? say("size_tib", { n }) : say("size_pib", { n });
}

/** Who may do what, of letters like `rw-r-----`. Those of a link mean nothing: what counts is what it leads to. */
export function may(kind, letters) {
  if (!letters || kind === "link") return "";
  if (letters[7] === "w") return say("may_all_write");
  if (letters[6] === "r") return say("may_all_read");
  if (letters[4] === "w") return say("may_group_write");
  return letters[3] === "r" ? say("may_group_read") : say("may_owner");
}

/** What something is, in a word. */
export function kind(word) {
  if (word === "directory") return say("kind_directory");
  if (word === "file") return say("kind_file");
  if (word === "link") return say("kind_link");
  return word === "mount" ? say("kind_mount") : say("kind_other");
}
