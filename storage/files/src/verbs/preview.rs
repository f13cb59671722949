//! Shows the beginning of a file, and any other part of a text: the one place where what people's files say is parsed, in the person's own process.

use std::os::fd::OwnedFd;

use data_encoding::HEXLOWER;
use eirene_files_protocol::{Answer, Code, Part, Piece, Preview, Previewed, Shown};

use crate::beneath::{Last, version};
use crate::errno::code;
use crate::preview::text::{Coding, MOST_CHARACTER};
use crate::preview::{notebook, picture, table, text};
use crate::server::Job;

/// Most bytes of a text or a table that are looked at, and of a page of a text; even, because characters of UTF-16 begin at even places.
const MOST_TEXT: usize = 256 * 1024;
/// The largest notebook that is parsed.
const MOST_NOTEBOOK: usize = 8 * 1024 * 1024;
/// Most bytes that are shown of what is nothing else.
const MOST_HEAD: usize = 256;
/// Bytes of a piece: JSON makes at most six of one.
const PIECE: usize = 12 * 1024;
/// Most bytes of pieces in a frame, by the same count.
const MOST_FRAME: usize = 16 * 1024;

pub(super) fn run(job: &Job, wanted: &Preview) -> Result<Answer, Code> {
    let (file, found) = job.space(wanted.space)?.find(&wanted.path, Last::Followed)?.read()?;
    let ends_with = |end: &str| wanted.path.as_bytes().to_ascii_lowercase().ends_with(end.as_bytes());
    let head = read(job, &file, 0, MOST_TEXT + MOST_CHARACTER)?;
    let (head, ahead) = (&head[..head.len().min(MOST_TEXT)], &head);
    let is_whole = found.stx_size <= head.len() as u64;
    let shown = if wanted.page > 0 {
        later_page(job, &file, found.stx_size, wanted.page, head)?
    } else if let Some((media, size)) = picture::look(head) {
        Shown::Picture { media: media.into(), size }
    } else if ends_with(".ipynb")
        && found.stx_size <= MOST_NOTEBOOK as u64
        && let Some((pieces, cut)) = notebook::pieces(&read(job, &file, 0, MOST_NOTEBOOK)?)
    {
        send(job, pieces)?;
        Shown::Notebook { cut }
    } else if let Some(coding) = Coding::of(head) {
        let text = coding.read(ahead, MOST_TEXT, true);
        if ends_with(".csv") || ends_with(".tsv") {
            let (rows, cut) = table::rows(&text, is_whole);
            send(job, rows.into_iter().map(Piece::Row))?;
            Shown::Table { cut }
        } else {
            send(job, text::pieces(&text, PIECE).map(|piece| Piece::Text(piece.into())))?;
            Shown::Text { encoding: coding.encoding(), cut: !is_whole }
        }
    } else {
        Shown::Bytes { head: HEXLOWER.encode(&head[..head.len().min(MOST_HEAD)]) }
    };
    Ok(Answer::Previewed(Previewed { version: version(&found), shown }))
}

/// A page of a text behind the first; how it is read is said by the file's `head`.
fn later_page(job: &Job, file: &OwnedFd, size: u64, number: u32, head: &[u8]) -> Result<Shown, Code> {
    let begin = u64::from(number) * MOST_TEXT as u64;
    let is_picture = picture::look(head).is_some();
    let coding = Coding::of(head).filter(|_| begin < size && !is_picture).ok_or(Code::OutOfRange)?;
    let bytes = read(job, file, begin, MOST_TEXT + MOST_CHARACTER)?;
    let text = coding.read(&bytes, MOST_TEXT, false);
    send(job, text::pieces(&text, PIECE).map(|piece| Piece::Text(piece.into())))?;
    Ok(Shown::Text { encoding: coding.encoding(), cut: size > begin + MOST_TEXT as u64 })
}

/// So many bytes of a file, or as many as there are.
fn read(job: &Job, file: &OwnedFd, begin: u64, most: usize) -> Result<Vec<u8>, Code> {
    let mut bytes = vec![0; most];
    let mut length = 0;
    while length < most {
        job.cancelled.check()?;
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut bytes[length..], begin + length as u64));
        match read.map_err(code)? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Sends pieces, as many in a frame as surely fit.
fn send(job: &Job, pieces: impl IntoIterator<Item = Piece>) -> Result<(), Code> {
    let mut frame = Vec::new();
    let mut bytes = 0;
    for piece in pieces {
        job.cancelled.check()?;
        let most = match &piece {
            Piece::Text(text) | Piece::Picture(text) | Piece::Omitted(text) => text.len() + 16,
            Piece::Row(cells) => cells.iter().map(|cell| cell.len() + 4).sum::<usize>() + 16,
            Piece::Cell(_) | Piece::Number(_) | Piece::Output | Piece::Table(_) => 32,
        };
        if bytes + most > MOST_FRAME && !frame.is_empty() {
            job.part(Part::Preview(std::mem::take(&mut frame)))?;
            bytes = 0;
        }
        bytes += most;
        frame.push(piece);
    }
    if frame.is_empty() { Ok(()) } else { job.part(Part::Preview(frame)) }
}
