//! Files to and from the portal over a plain socket, as a client at a command line moves them: one thread, one buffer that is used again. What a
//! client costs is to be no part of what the portal is said to cost. For everything else there is a real client, in [`crate::files`].

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, bail, ensure};

/// Bytes of the buffer.
const BUFFER: usize = 256 * 1024;

/// One connection to the portal, kept.
pub(crate) struct Wire {
    stream: TcpStream,
    /// The headers that every request has.
    common: String,
    buffer: Vec<u8>,
}

impl Wire {
    /// Connects; `bearer` is what the `Authorization` header says.
    pub(crate) fn connect(address: SocketAddr, host: &str, bearer: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let common = format!("host: {host}\r\nauthorization: {bearer}\r\ntus-resumable: 1.0.0\r\n");
        Ok(Self { stream, common, buffer: vec![0; BUFFER] })
    }

    /// Sends bytes `from` to `to` of a file as a piece of the upload at `path`; with what the `upload-checksum` header says, if that is given.
    pub(crate) fn send(
        &mut self,
        path: &str,
        file: &File,
        (from, to): (u64, u64),
        sum: Option<&str>,
    ) -> anyhow::Result<()> {
        let sum = sum.map(|sum| format!("upload-checksum: {sum}\r\n")).unwrap_or_default();
        let headers = format!(
            "upload-offset: {from}\r\ncontent-length: {}\r\ncontent-type: application/offset+octet-stream\r\n{sum}",
            to - from
        );
        self.ask("PATCH", path, &headers)?;
        let mut at = from;
        while at < to {
            let most = usize::try_from(to - at).map_or(BUFFER, |left| left.min(BUFFER));
            let read = file.read_at(&mut self.buffer[..most], at)?;
            ensure!(read > 0, "the file is shorter than it was");
            self.stream.write_all(&self.buffer[..read])?;
            at += read as u64;
        }
        let (length, begun) = self.answer()?;
        ensure!(length == 0 && begun == 0, "a piece was answered by {length} bytes");
        Ok(())
    }

    /// Fetches what is at `path`, to a file from its beginning, or to nowhere; how many bytes.
    pub(crate) fn fetch(&mut self, path: &str, target: Option<&File>) -> anyhow::Result<u64> {
        self.ask("GET", path, "")?;
        let (length, mut ready) = self.answer()?;
        let mut at = 0;
        loop {
            // Whole buffers are written at their places, as `dd` does.
            let whole = usize::try_from(length - at).map_or(BUFFER, |left| left.min(BUFFER));
            while ready < whole {
                let read = self.stream.read(&mut self.buffer[ready..])?;
                ensure!(read > 0, "the portal closed the connection after {at} of {length} bytes");
                ready += read;
            }
            if let Some(file) = target {
                file.write_all_at(&self.buffer[..ready], at)?;
            }
            at += ready as u64;
            if at >= length {
                break;
            }
            ready = 0;
        }
        ensure!(at == length, "{at} bytes came instead of {length}");
        Ok(at)
    }

    fn ask(&mut self, method: &str, path: &str, headers: &str) -> anyhow::Result<()> {
        let head = format!("{method} {path} HTTP/1.1\r\n{}{headers}\r\n", self.common);
        Ok(self.stream.write_all(head.as_bytes())?)
    }

    /// Reads the head of an answer: how long its body is, and how much of it is at the beginning of the buffer.
    fn answer(&mut self) -> anyhow::Result<(u64, usize)> {
        let mut filled = 0;
        let end = loop {
            let read = self.stream.read(&mut self.buffer[filled..])?;
            ensure!(read > 0, "the portal closed the connection");
            filled += read;
            if let Some(at) = self.buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("no status")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        if !status.starts_with('2') {
            bail!("the portal answered {status}: {}", String::from_utf8_lossy(&self.buffer[end..filled]));
        }
        let length = match (status, length) {
            ("204", _) => 0,
            (_, length) => length.context("the portal does not say how much comes")?.trim().parse()?,
        };
        self.buffer.copy_within(end..filled, 0);
        Ok((length, filled - end))
    }
}
