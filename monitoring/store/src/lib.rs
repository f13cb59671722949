//! The built-in store of samples: compressed time series of sessions, with minutes folded from them, on a bounded part of a disk.
//!
//! A series is a session and a name. The store takes samples in batches, says which it refuses and why ([`Refusal`]), and answers a span of
//! time with as many points as a chart has, from samples or from minutes ([`Query`]). What is sampled, who may see it and when to flush is for
//! the caller; so is time, which comes in by parameter, but for the pace of flushes while chunks are closed. There are no threads and no async here: [`Store::append`] only touches memory and may wait for that, the
//! rest is to be called where waiting for a disk does no harm.
//!
//! # The way of a sample
//! It is put into its series' *open chunk* in memory and into the records for the *journal*. [`Store::flush`] appends these as one frame and
//! has the disk hold it. Every two hours, or when memory or journal hold much more than the last time left, [`Store::maintain`] *closes* chunks: all samples
//! that are older than the window for late ones become a *segment* of samples and one of minutes, and the journal is replaced by a short one with the rest.
//! Only where what waits for late samples is itself too much for memory or journal, all are closed.
//! Small segments are merged, sixteen at a time. A segment is removed as a whole, when all in it is too old or the disk's bound asks for
//! it: the oldest samples first, then the oldest minutes. Bytes are counted before they are written.
//!
//! # What a crash loses
//! What was not flushed; while chunks are closed that is done every second. Frames, indexes, columns and directories have checksums (CRC-32); a journal ends at its first frame that is not whole
//! and is cut there, a segment without a right directory is put aside as `….broken` and is the first to go when room is needed, a
//! block that is wrong is left out of the answer, which says so. Files get their names when they are whole and on the disk.
//!
//! # What it takes of memory
//! [`Options::memory_bytes`] of open chunks, twice that while they are closed, at most a quarter of it of records for the journal (16 MiB at least), 56
//! bytes for each segment and session in it. A series takes 256 bytes and its name, as long as it has samples that are open or had one within the window for
//! late ones; its samples take two or three bytes each until they are closed where they are whole numbers, seven to nine where they are fractions. 256 MiB are enough
//! for 130,000 series of fractions with a sample every 5 s and ten minutes in which they may be late, 512 MiB for 250,000. Half of it is for series; where that runs short, a session that has many is refused more of them first. Merging holds what sixteen segments of at most 4 MiB have of one session; a query holds its answer and the blocks of a
//! segment at a time.
//!
//! # What is late, twice or wrong
//! A series' closed samples are all before its open ones, so a duplicate is always found: among open ones by looking, among closed ones because
//! all that is not later than they are is refused, also of a series that has ended and begins again. Late samples go into the open chunk out of order and are sorted when it is read. A clock
//! that was set back has its samples refused until it has caught up, but for the ten minutes of the window.
//!
//! # Files
//! All of them lie in one directory (mode 0700, files 0600). Fixed numbers are little-endian, *n* is a LEB128 number, *s* one with its sign in
//! the lowest bit. Numbers in names are hexadecimal, sixteen digits.
//!
//! **`lock`**: empty; locked (flock(2)) by the process that has the store open.
//!
//! **`journal-NUMBER`**: `EIRMJ 0 0 1` (8 bytes), number (8), CRC of these (4); then frames: length of the payload (4), its CRC (4), payload.
//! A payload is records. Each begins with *n* = reference × 4 + kind:
//! - 0, a series: session (16), length of the name (1), name, *s* last closed time;
//! - 1, a sample: *s* milliseconds since the sample before in this frame (the first: since the epoch), value as IEEE 754 (8);
//! - 2, a session was dropped: session (16);
//! - 3, samples that stayed open: *n* samples, *n* length of their bits, bits: time and value of each in turn, coded as in a column of times and one of
//!   values of kind 1.
//!
//! **`raw-FIRST-LAST-VERSION`**, **`minutes-FIRST-LAST-VERSION`**: segments of the journals FIRST to LAST: `EIRMS 0 0 1` (8), blocks, directory, trailer.
//! - Directory, for each session in order: session (16), offset of the block (8), length of its index (4), of the block (4), first and last
//!   time in milliseconds (8 each).
//! - Trailer: offset of the directory (8), number of entries (4), CRC of directory, offset and number (4), `EIRMS 0 0 1` (8).
//! - Block: index, CRC of it (4), columns, CRC of them (4).
//! - Index: *n* series; for each, by name: length of the name (1), name, *s* first time, *n* last less first, *n* rows, *n* offset and *n* length of
//!   the column of times, *n* offset and *n* length of the figures. Offsets begin at the first column; times of minutes are counted in minutes.
//! - Times, bits with the highest first: for each the difference of the difference to the time before, sign lowest, behind a prefix that says
//!   its bits: `0`: 0, `10`: 7, `110`: 10, `1110`: 14, `11110`: 32, `11111`: 64. Before the first time are time 0 and difference 0.
//! - Figures of samples: one column of values; of minutes four, each behind its *n* length: least, greatest, mean (of 24 bits), count.
//! - Column of values: a byte says how. 0: one value (8) for all. 1: XOR with the value before as in Gorilla. 16 + d or 32 + d: integers, by 10^d, of
//!   the values or of their differences, in blocks of 64: *s* the least, width (1), what each is above it in `width` bits.
//!
//! **`dropped`**: `EIRMD 0 0 1` (8), count (4), for each session: session (16), first journal that counts again (8); CRC (4).
//!
//! # Why files of our own
//! `bench/store` compares them with what they could have been, in turns on two cores that others used as well (25 November 2026): a day of 160
//! series of a 16-GPU session, a sample every 5 s. In brackets is how many times better these files are.
//!
//! | | this | SQLite rows | Parquet | fjall | Prometheus |
//! |---|---|---|---|---|---|
//! | samples a second, one core | 4 240 000 | 177 000 (24) | 11 600 000 (0.4) | 7 840 000 (0.5) | |
//! | bytes a sample | 1.33 | 20.7 (16) | 1.88 (1.4) | 5.19 (3.9) | 3.41 (2.6) |
//! | a chart of all of it, ms | 14 | 1600 (116) | 78 (5.6) | 91 (6.6) | |
//! | a chart of its last hour, ms | 4.5 | 362 (80) | 6.5 (1.4) | 4.3 (0.9) | |
//!
//! Rows are out by each figure. Parquet and an embedded store (fjall, a value a series and minute) take samples faster than this, which looks for
//! late ones and duplicates and makes minutes, but both are far beyond the 50,000 a second that are asked for, and both would need what this has on
//! top of them: Parquet a journal, because a file without its footer is nothing, and whole row groups in memory; both their own minutes, retention by
//! bytes on the disk, and answers about what is late. What is left then is a file with more bytes, and twenty crates of others behind it. So: bytes and
//! charts decide, and one kind of file that is written once and removed as a whole.
//!
//! The codes of open chunks are from T. Pelkonen et al., "Gorilla", VLDB 2015, which gives 1.37 bytes a sample for its authors' data; those of closed
//! ones were added because decimals with noise defeat XOR, and XOR is what Prometheus' chunks have.

mod bits;
mod block;
mod column;
mod disk;
mod dropped;
mod head;
mod journal;
mod merge;
mod open;
mod query;
mod recovery;
mod refusal;
mod rollup;
mod segment;
mod store;
mod wire;
mod writer;

pub use query::{Answer, Line, Query, Resolution, SeriesSpan};
pub use refusal::Refusal;
pub use rollup::Point;
pub use store::{
    MOST_AHEAD_MS, MOST_BEHIND_MS, MOST_NAME_BYTES, MOST_VALUE, Options, Sample, SessionId, Stats, Store, StoreError,
};
