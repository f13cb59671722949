//! Memory: `16000` (mebibytes), `2G`, `512K`, `1.50T`, with an optional `c` or `n` (per CPU, per node) behind it.

use super::TextError;

/// Reads an amount of memory in mebibytes, rounded up.
pub(crate) fn parse_mebibytes(text: &str) -> Result<u64, TextError> {
    mebibytes(text.trim()).ok_or_else(|| TextError::new("amount of memory", text))
}

fn mebibytes(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['c', 'n']).unwrap_or(text);
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let kibibytes_each: u128 = match unit {
        "K" | "k" => 1,
        "" | "M" | "m" => 1 << 10,
        "G" | "g" => 1 << 20,
        "T" | "t" => 1 << 30,
        "P" | "p" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.len() > 15 || fraction.len() > 6 || whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = whole.parse::<u128>().ok()? * scale + fraction.parse::<u128>().ok()?;
    u64::try_from((scaled * kibibytes_each).div_ceil(scale * 1024)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, mebibytes) in [
            ("16000", 16_000),
            ("16000M", 16_000),
            ("2G", 2048),
            ("2Gn", 2048),
            ("1000Mc", 1000),
            ("512K", 1),
            ("1.50T", 1_572_864),
            ("62.50G", 64_000),
            ("0", 0),
        ] {
            assert_eq!(parse_mebibytes(text), Ok(mebibytes), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for bad in ["", "G", ".5G", "1.G", "-1", "1X", "1GB", "1..2", "9999999999999999P", "N/A", "?"] {
            assert!(parse_mebibytes(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn units_agree(gibibytes in 0_u64..1_000_000) {
            prop_assert_eq!(parse_mebibytes(&format!("{gibibytes}G")), parse_mebibytes(&format!("{}M", gibibytes * 1024)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse_mebibytes(&text);
        }
    }
}
