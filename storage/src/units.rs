//! Sizes as the tools print them. Whoever asks gets bytes or nothing; rounding is said by the precision beside the number.

/// 0.1 GiB in bytes: what `beegfs-ctl --listtargets` rounds sizes to.
pub(crate) const TENTH_OF_GIB: u64 = (1 << 30) / 10;
/// 0.1 million: what it rounds numbers of inodes to.
pub(crate) const TENTH_OF_MILLION: u64 = 100_000;

/// Plain digits.
pub(crate) fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// `252.0GiB` in tenths of a GiB, `16.8M` in tenths of a million: digits, one decimal, the unit.
pub(crate) fn tenths(text: &str, unit: &str) -> Option<u64> {
    let (whole, tenth) = text.strip_suffix(unit)?.split_once('.')?;
    if tenth.len() != 1 {
        return None;
    }
    digits(whole)?.checked_mul(10)?.checked_add(digits(tenth)?)
}

/// Tenths of a GiB in bytes.
pub(crate) fn gib_tenths(tenths: u64) -> Option<u64> {
    let bytes = u128::from(tenths) * (1 << 30) / 10;
    u64::try_from(bytes).ok()
}

/// `512K`, `1M`, `65536`: binary multiples without a remainder, as chunk sizes are printed.
pub(crate) fn binary(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => return digits(text),
    };
    digits(&text[..text.len() - 1])?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_whole_or_not_at_all() {
        assert_eq!(tenths("252.0GiB", "GiB"), Some(2520));
        assert_eq!(tenths("16.8M", "M"), Some(168));
        for bad in ["252GiB", "252.GiB", "252.00GiB", ".0GiB", "-1.0GiB", "252.0TiB", "252.0", ""] {
            assert_eq!(tenths(bad, "GiB"), None, "{bad:?}");
        }
        assert_eq!(gib_tenths(2520), Some(252 << 30));
        assert_eq!(gib_tenths(u64::MAX), None);
        assert_eq!(binary("512K"), Some(512 << 10));
        assert_eq!(binary("1M"), Some(1 << 20));
        assert_eq!(binary("65536"), Some(65536));
        for bad in ["", "K", "1.5M", "-1K", "1KB", "99999999999999999999", "18446744073709551615G", "1ä"] {
            assert_eq!(binary(bad), None, "{bad:?}");
        }
    }
}
