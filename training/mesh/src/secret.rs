//! The world's secret: 128 bits that every rank knows and nobody else. It never stands in arguments, the environment or
//! a log; it travels by descriptor or in a file that only its owner can read.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rand::TryRng as _;
use zeroize::{Zeroize as _, Zeroizing};

use crate::error::Error;

/// Bytes of a secret.
pub(crate) const BYTES: usize = 16;

/// 128 bits known to all ranks of a world and to nobody else. Wiped when dropped; never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; BYTES]>);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

impl Secret {
    /// A fresh secret from the operating system's randomness.
    pub fn new_random() -> Result<Self, Error> {
        let mut bytes = [0; BYTES];
        random(&mut bytes)?;
        Ok(Self(bytes.into()))
    }

    /// A secret that came from elsewhere.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes.into())
    }

    /// Reads a secret (16 bytes, or 32 hexadecimal digits) from a pipe or file to its end, and closes it.
    pub fn read_from_fd(fd: OwnedFd) -> Result<Self, Error> {
        read(File::from(fd))?.ok_or_else(|| Error::invalid("the descriptor holds no secret of 128 bits"))
    }

    /// Reads a secret from a regular file that belongs to us and that nobody else may read or write.
    pub fn read_from_file(path: &Path) -> Result<Self, Error> {
        let file = open_private(path)?;
        read(file)?.ok_or(Error::SecretFile { path: path.into(), why: "holds no secret of 128 bits" })
    }

    /// The bits, for handing them on by descriptor.
    pub fn expose(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// The bits as 32 hexadecimal digits, for a private file.
    pub(crate) fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(to_hex(self.0.as_slice()))
    }

    /// From 32 hexadecimal digits.
    pub(crate) fn from_hex(digits: &str) -> Option<Self> {
        let mut bytes = [0; BYTES];
        let found = from_hex(digits.as_bytes(), &mut bytes);
        let secret = found.then(|| Self(bytes.into()));
        bytes.zeroize();
        secret
    }
}

/// Opens a file for reading that is regular, ours and closed to everybody else.
pub(crate) fn open_private(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => Error::SecretFile { path: path.into(), why: "is a symbolic link" },
            _ => Error::System { what: "open the file with the secret", source: error },
        })?;
    let meta = file.metadata().map_err(Error::system("look at the file with the secret"))?;
    let why = if !meta.is_file() {
        "is not a regular file"
    } else if meta.uid() != nix::unistd::geteuid().as_raw() {
        "belongs to somebody else"
    } else if meta.mode() & 0o077 != 0 {
        "can be read by others: it should have mode 0600"
    } else {
        return Ok(file);
    };
    Err(Error::SecretFile { path: path.into(), why })
}

fn read(file: File) -> Result<Option<Secret>, Error> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(64));
    file.take(64).read_to_end(&mut bytes).map_err(Error::system("read the secret"))?;
    if let Ok(raw) = <[u8; BYTES]>::try_from(bytes.as_slice()) {
        return Ok(Some(Secret(raw.into())));
    }
    Ok(std::str::from_utf8(&bytes).ok().and_then(|text| Secret::from_hex(text.trim_end())))
}

/// Fills `bytes` from the operating system.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), Error> {
    rand::rngs::SysRng
        .try_fill_bytes(bytes)
        .map_err(|error| Error::System { what: "get randomness", source: std::io::Error::other(error.to_string()) })
}

/// A random number.
pub(crate) fn random_u64() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Lower-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

/// Reads exactly as many digits as fill `bytes`; false if they are not that.
pub(crate) fn from_hex(digits: &[u8], bytes: &mut [u8]) -> bool {
    if digits.len() != bytes.len() * 2 {
        return false;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: u8| char::from(at).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return false };
        *byte = high << 4 | low;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::from_bytes([0xab; 16]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn a_secret_is_read_from_a_private_file_in_both_forms() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        for text in
            [&b"000102030405060708090a0b0c0d0e0f\n"[..], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]]
        {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(
                Secret::read_from_file(&path).unwrap().expose(),
                &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
            );
        }
        std::fs::write(&path, "0001020304").unwrap();
        assert!(matches!(
            Secret::read_from_file(&path),
            Err(Error::SecretFile { why: "holds no secret of 128 bits", .. })
        ));
    }

    #[test]
    fn a_secret_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, [7; 16]).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Secret::read_from_file(&path), Err(Error::SecretFile { .. })), "mode {mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert!(Secret::read_from_file(&path).is_ok());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(Secret::read_from_file(&link), Err(Error::SecretFile { why: "is a symbolic link", .. })));
        assert!(matches!(
            Secret::read_from_file(directory.path()),
            Err(Error::SecretFile { why: "is not a regular file", .. })
        ));
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(Secret::read_from_file(&pipe), Err(Error::SecretFile { why: "is not a regular file", .. })));
    }

    #[test]
    fn a_secret_is_read_from_a_descriptor() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[9; 16]).unwrap();
        drop(writer);
        assert_eq!(Secret::read_from_fd(reader.into()).unwrap().expose(), &[9; 16]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert!(matches!(Secret::read_from_fd(reader.into()), Err(Error::Invalid { .. })));
    }
}
